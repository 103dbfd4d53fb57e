// Package uitest holds the pages of module ui against a browser and against requests that browsers do not send. It is a
// module of its own, so that importers of ui never see chromedp.
package uitest
