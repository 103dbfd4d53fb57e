package main

import (
	"os"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/examples/internal/browser"
)

func submit(form string) chromedp.Action { return chromedp.Click(form + " button[type=submit]") }

func TestOperatorUploadsWatchesAndRepairsInTheBrowser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := browser.Open(t, 360, 740)
	tab.Do(chromedp.Navigate("http://"+w.address+"/?lang=en"), browser.Text("h1", english.Title))

	tab.Do(
		chromedp.SendKeys("#upload input[name=batch]", "b1"), chromedp.SendKeys("#upload input[name=operator]", "Eve"),
		chromedp.SetValue("#upload textarea", "user,name,phone\nu1,Ann,1\n"), submit("#upload"),
		browser.Text("#news", "✗ phone: unknown column; want user, name, email"))

	// The directory refuses one user.
	tab.Do(chromedp.Evaluate(`window.here = true`, nil), chromedp.Click("#sample"), browser.Until(`document.querySelector("#upload textarea").value.includes("b1-0050")`),
		chromedp.Evaluate(`{ const users = document.querySelector("#upload textarea"); users.value = users.value.replaceAll("example.invalid", "example.org") + "last,Last,last@example.invalid\n" }`, nil),
		submit("#upload"), browser.Text("#news", "✓ b1: 51"), browser.Text("#total-users", "51"), browser.Until(`document.querySelector(".repair[data-user=last]")`))

	tab.Do(chromedp.SetValue(".repair[data-user=last] input[name=email]", "last@example.org"), chromedp.SendKeys(".repair[data-user=last] input[name=operator]", "Eve"),
		submit(".repair[data-user=last]"), browser.Text("#news", "✓ b1: last"), browser.Until(`!document.querySelector(".repair[data-user=last]")`))
	w.awaitSynced("last")

	_, err := w.db.Exec(`INSERT INTO usersync_faults (what, struck_at) VALUES ('<b>lightning</b>', UTC_TIMESTAMP(3))`)
	require.NoError(t, err)
	tab.Do(browser.Until(`document.querySelector("#faults li")?.textContent.includes("<b>lightning</b>")`))

	var fits, stayed bool
	tab.Do(chromedp.Evaluate(`document.documentElement.scrollWidth <= 360`, &fits), chromedp.Evaluate(`window.here === true`, &stayed))
	require.True(t, fits, "no scrolling sideways at 360 px")
	require.True(t, stayed, "the page was not loaded again")

	tab.Follow("nav a")
	tab.Do(browser.Text("h1", chinese.Title), browser.Text("#persons-title", chinese.ForPerson))
	tab.Do(chromedp.Evaluate(`document.documentElement.scrollWidth <= 360`, &fits))
	require.True(t, fits, "no scrolling sideways at 360 px, in Chinese")
}

func TestPageShowsNamesAsText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.client.upload(w.ctx, "b1", `<img src=x onerror="window.broken=1">`, "t", []byte(goodCSV))
	require.NoError(t, err)
	tab := browser.Open(t, 800, 600)
	var images int
	tab.Do(chromedp.Navigate("http://"+w.address+"/"), browser.Until(`document.querySelector(".batch small")?.textContent.includes("<img")`),
		chromedp.Evaluate(`document.images.length`, &images))
	require.Zero(t, images)
}

func photograph(t *testing.T, address, file string) {
	tab := browser.Open(t, 1000, 1000)
	var picture []byte
	tab.Do(chromedp.Navigate("http://"+address+"/?lang=en"), browser.Until(`document.querySelector(".batch")`), chromedp.CaptureScreenshot(&picture))
	require.NoError(t, os.WriteFile(file, picture, 0o644))
}
