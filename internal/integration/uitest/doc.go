// Package uitest tests the pages of package ui with a browser, and with requests that browsers do not send.
package uitest
