package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// browse opens a browser's tab of a telephone's width.
func browse(t *testing.T, width, height int64) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WSURLReadTimeout(time.Minute))
	allocated, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(stop)
	tab, _ := chromedp.NewContext(allocated)
	t.Cleanup(func() { require.NoError(t, chromedp.Cancel(tab)) })                                           // it returns when the browser has ended and its files are gone
	require.NoError(t, chromedp.Run(tab, chromedp.EmulateViewport(width, height)), "is chromium installed?") // the browser lives as long as this context
	timed, cancel := context.WithTimeout(tab, 2*time.Minute)
	t.Cleanup(cancel)
	return timed
}

func (w *world) do(tab context.Context, actions ...chromedp.Action) {
	w.t.Helper()
	require.NoError(w.t, chromedp.Run(tab, actions...))
}

// until waits for a condition in the page.
func until(condition string) chromedp.Action { return chromedp.Poll(condition, nil) }

func text(selector, is string) chromedp.Action {
	return until(fmt.Sprintf(`document.querySelector(%q)?.textContent === %q`, selector, is))
}

func submit(form string) chromedp.Action { return chromedp.Click(form + " button[type=submit]") }

func TestOperatorUploadsWatchesAndRepairsInTheBrowser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := browse(t, 360, 740)
	w.do(tab, chromedp.Navigate("http://"+w.address+"/?lang=en"), text("h1", english.Title))

	// A bad upload is explained, and what was typed stays.
	w.do(tab,
		chromedp.SendKeys("#upload input[name=batch]", "b1"), chromedp.SendKeys("#upload input[name=operator]", "Eve"),
		chromedp.SetValue("#upload textarea", "user,name,phone\nu1,Ann,1\n"), submit("#upload"),
		text("#news", "✗ phone: unknown column; want user, name, email"))

	// 50 users arrive without a reload, but for one whom the directory does not take.
	w.do(tab, chromedp.Evaluate(`window.here = true`, nil), chromedp.Click("#sample"), until(`document.querySelector("#upload textarea").value.includes("b1-0050")`),
		chromedp.Evaluate(`{ const users = document.querySelector("#upload textarea"); users.value = users.value.replaceAll("example.invalid", "example.org") + "last,Last,last@example.invalid\n" }`, nil),
		submit("#upload"), text("#news", "✓ b1: 51"), text("#total-users", "51"), until(`document.querySelector(".repair[data-user=last]")`))

	// A person repairs that one, and it arrives as well.
	w.do(tab, chromedp.SetValue(".repair[data-user=last] input[name=email]", "last@example.org"), chromedp.SendKeys(".repair[data-user=last] input[name=operator]", "Eve"),
		submit(".repair[data-user=last]"), text("#news", "✓ b1: last"), until(`!document.querySelector(".repair[data-user=last]")`))
	w.awaitSynced("last")

	var fits, stayed bool
	w.do(tab, chromedp.Evaluate(`document.documentElement.scrollWidth <= 360`, &fits), chromedp.Evaluate(`window.here === true`, &stayed))
	require.True(t, fits, "no scrolling sideways at 360 px")
	require.True(t, stayed, "the page was not loaded again")

	_, err := chromedp.RunResponse(tab, chromedp.Click("nav a"))
	require.NoError(t, err)
	w.do(tab, text("h1", chinese.Title), text("#persons-title", chinese.ForPerson))
	w.do(tab, chromedp.Evaluate(`document.documentElement.scrollWidth <= 360`, &fits))
	require.True(t, fits, "no scrolling sideways at 360 px, in Chinese")
}

// What an operator types is shown as text: no page of another's is made of it.
func TestPageShowsNamesAsText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.client.upload(w.ctx, "b1", `<img src=x onerror="window.broken=1">`, "t", []byte(goodCSV))
	require.NoError(t, err)
	tab := browse(t, 800, 600)
	var images int
	w.do(tab, chromedp.Navigate("http://"+w.address+"/"), until(`document.querySelector(".batch small")?.textContent.includes("<img")`),
		chromedp.Evaluate(`document.images.length`, &images))
	require.Zero(t, images)
}

// photograph writes what the page shows.
func photograph(t *testing.T, address, file string) {
	tab := browse(t, 1000, 1000)
	var picture []byte
	require.NoError(t, chromedp.Run(tab, chromedp.Navigate("http://"+address+"/?lang=en"), until(`document.querySelector(".batch")`), chromedp.CaptureScreenshot(&picture)))
	require.NoError(t, os.WriteFile(file, picture, 0o644))
}
