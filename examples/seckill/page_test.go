package main

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/examples/internal/browser"
	"github.com/compensator-go/compensator/examples/internal/shop"
)

func TestVisitorBuysAndLetsACrowdInInTheBrowser(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *settings) { s.Stock = 40 })
	tab := browser.Open(t, 360, 740)
	tab.Do(chromedp.Navigate("http://"+w.Address+"/?lang=en"), browser.Until(`document.querySelector("h1").textContent.startsWith("Flash sale")`),
		browser.Text("#stock-redis", "40"), browser.Text("#stock-database", "40"), chromedp.Evaluate(`window.here = true`, nil))

	buy := func() { tab.Do(chromedp.SetValue("#buy input", "eve"), chromedp.Click("#buy button")) }
	buy()
	tab.Do(browser.Text("#news", "✓ eve: "+shop.English.Accepted), browser.Text("#stock-redis", "39"), browser.Text("#stock-database", "39"), browser.Text("#entries-create_order .done", "1"))
	buy()
	tab.Do(browser.Text("#news", "✗ eve: "+shop.English.Again))

	sold := w.State("eve").Ticket
	w.Exec(`UPDATE seckill_orders SET due_at = UTC_TIMESTAMP(3)`)
	require.NoError(t, w.other.Log.Reschedule(t.Context(), shop.Ticket{ID: sold}.CloseKey(), 0))
	tab.Do(browser.Text("#orders-closed", "1"), browser.Text("#stock-redis", "40"), browser.Text("#stock-database", "40"))

	// Each buyer pays with a chance of one in three, so with few pieces nobody might pay.
	tab.Do(chromedp.SetValue("#crowd input", "60"), chromedp.Click("#crowd button"), browser.Text("#news", "✓ "+shop.English.CrowdIn), browser.Text("#stock-redis", "0"),
		browser.Until(`Number(document.querySelector("#orders-paid").textContent) > 0`))

	w.Exec(`INSERT INTO seckill_faults (what, struck_at) VALUES ('<b>lightning</b>', UTC_TIMESTAMP(3))`)
	tab.Do(browser.Until(`document.querySelector("#faults li")?.textContent.includes("<b>lightning</b>")`))

	const fits = `document.documentElement.scrollWidth <= 360`
	require.True(t, tab.Holds(fits), "no scrolling sideways at 360 px")
	require.True(t, tab.Holds(`window.here === true`), "the page was not loaded again")
	tab.Follow("nav a")
	tab.Do(browser.Text("#orders-title", shop.Chinese.Orders))
	require.True(t, tab.Holds(fits), "no scrolling sideways at 360 px, in Chinese")
}

func photograph(t *testing.T, address, file string) {
	tab := browser.Open(t, 900, 700)
	tab.Do(chromedp.Navigate("http://"+address+"/?lang=en"), browser.Until(`document.querySelectorAll("#faults li").length >= 4 && Number(document.querySelector("#orders-closed").textContent) > 0 &&
		Number(document.querySelector("#answers").textContent) > 0`))
	tab.Photograph(file)
}
