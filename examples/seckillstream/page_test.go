package main

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/examples/internal/browser"
	"github.com/compensator-go/compensator/examples/internal/shop"
)

func TestVisitorBuysAndLetsACrowdInInTheBrowser(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.Stock = 40 })
	tab := browser.Open(t, 360, 740)
	tab.Do(chromedp.Navigate("http://"+w.Address+"/?lang=en"), browser.Until(`document.querySelector("h1").textContent.startsWith("Flash sale by stream")`),
		browser.Text("#stock-redis", "40"), browser.Text("#stock-database", "40"), chromedp.Evaluate(`window.here = true`, nil))
	require.True(t, tab.Holds(`document.querySelector("header p").textContent.includes("its buyer may buy again")`), "the page says what Redis may lose")

	goOn := w.holdUp()
	buy := func() { tab.Do(chromedp.SetValue("#buy input", "eve"), chromedp.Click("#buy button")) }
	buy()
	tab.Do(browser.Text("#news", "✓ eve: "+shop.English.Accepted), browser.Text("#stock-redis", "39"), browser.Text("#orders-waiting", "1"), browser.Text("#stock-database", "40"))
	goOn()
	tab.Do(browser.Text("#stock-database", "39"), browser.Text("#orders-waiting", "0"), browser.Text("#orders-open", "1"))
	buy()
	tab.Do(browser.Text("#news", "✗ eve: "+shop.English.Again))

	w.add("order", "{{no order}")
	tab.Do(browser.Until(`document.querySelector("#entries-order_aside .bad b")?.textContent === "1"`))

	// Each buyer pays with a chance of one in three, so with few pieces nobody might pay.
	tab.Do(chromedp.SetValue("#crowd input", "60"), chromedp.Click("#crowd button"), browser.Text("#news", "✓ "+shop.English.CrowdIn), browser.Text("#stock-redis", "0"),
		browser.Until(`Number(document.querySelector("#orders-paid").textContent) > 0`))

	w.Exec(`INSERT INTO seckillstream_faults (what, struck_at) VALUES ('<b>lightning</b>', UTC_TIMESTAMP(3))`)
	tab.Do(browser.Until(`document.querySelector("#faults li")?.textContent.includes("<b>lightning</b>")`))

	const fits = `document.documentElement.scrollWidth <= 360`
	require.True(t, tab.Holds(fits), "no scrolling sideways at 360 px")
	require.True(t, tab.Holds(`window.here === true`), "the page was not loaded again")
	tab.Follow("nav a")
	tab.Do(browser.Text("#orders-title", shop.Chinese.Orders), browser.Until(`document.querySelector("h1").textContent.includes("`+strings.Split(look.Chinese.Title, "（")[0]+`")`))
	require.True(t, tab.Holds(fits), "no scrolling sideways at 360 px, in Chinese")
}

func photograph(t *testing.T, address, file string) {
	tab := browser.Open(t, 900, 700)
	tab.Do(chromedp.Navigate("http://"+address+"/?lang=en"), browser.Until(`document.querySelectorAll("#faults li").length >= 4 && Number(document.querySelector("#orders-closed").textContent) > 0 &&
		Number(document.querySelector("#answers").textContent) > 0`))
	tab.Photograph(file)
}
