package main

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/compensator-go/compensator/examples/internal/browser"
)

// photograph writes what the page shows once something has struck and pieces have come back.
func photograph(t *testing.T, address, file string) {
	tab := browser.Open(t, 900, 700)
	tab.Do(chromedp.Navigate("http://"+address+"/?lang=en"), browser.Until(`document.querySelectorAll("#faults li").length >= 4 && Number(document.querySelector("#orders-closed").textContent) > 0 &&
		Number(document.querySelector("#answers").textContent) > 0`))
	tab.Photograph(file)
}
