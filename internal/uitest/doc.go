// Package uitest tests the pages of module ui with a browser, and with requests that browsers do not send. It is a
// separate module, so that importers of ui do not download chromedp.
package uitest
