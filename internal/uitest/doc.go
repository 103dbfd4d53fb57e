// Package uitest tests the pages of package ui with a browser, and with requests that browsers do not send. It is a
// separate module, so that importers of ui do not download chromedp.
package uitest
