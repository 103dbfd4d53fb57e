// Package browser opens pages in a headless Chromium for tests.
package browser

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// Tab is the only tab of a browser that Open starts.
type Tab struct {
	tb  testing.TB
	ctx context.Context
}

// Open returns a tab of the given size.
func Open(tb testing.TB, width, height int64) *Tab {
	tb.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WSURLReadTimeout(time.Minute))
	allocated, stop := chromedp.NewExecAllocator(context.Background(), options...)
	tb.Cleanup(stop)
	tab, _ := chromedp.NewContext(allocated)
	tb.Cleanup(func() { // Cancel returns when the browser has ended and its files are removed.
		if err := chromedp.Cancel(tab); err != nil {
			tb.Errorf("browser: %v", err)
		}
	})
	if err := chromedp.Run(tab, chromedp.EmulateViewport(width, height)); err != nil { // The browser lives as long as the context of its first Run, so this context has no timeout.
		tb.Fatalf("browser: is chromium installed? %v", err)
	}
	timed, cancel := context.WithTimeout(tab, 2*time.Minute)
	tb.Cleanup(cancel)
	return &Tab{tb: tb, ctx: timed}
}

// Do runs actions.
func (t *Tab) Do(actions ...chromedp.Action) {
	t.tb.Helper()
	if err := chromedp.Run(t.ctx, actions...); err != nil {
		t.tb.Fatalf("browser: %v", err)
	}
}

// Follow clicks a link and returns when the next page is loaded.
func (t *Tab) Follow(link string) {
	t.tb.Helper()
	if _, err := chromedp.RunResponse(t.ctx, chromedp.Click(link)); err != nil {
		t.tb.Fatalf("browser: follow %s: %v", link, err)
	}
}

// Holds evaluates a condition in the page and returns its value.
func (t *Tab) Holds(condition string) (holds bool) {
	t.tb.Helper()
	t.Do(chromedp.Evaluate(condition, &holds))
	return holds
}

// Until waits for a condition in the page, with the timeout of the tab: chromedp's default of 30 s is too short on a
// busy machine.
func Until(condition string) chromedp.Action {
	return chromedp.Poll(condition, nil, chromedp.WithPollingTimeout(0))
}

// Text waits until the first element that the selector matches has exactly the text of the second argument.
func Text(selector, text string) chromedp.Action {
	return Until(fmt.Sprintf(`document.querySelector(%q)?.textContent === %q`, selector, text))
}

// Photograph writes the whole page to a PNG file.
func (t *Tab) Photograph(file string) {
	t.tb.Helper()
	var picture []byte
	t.Do(chromedp.FullScreenshot(&picture, 100))
	if err := os.WriteFile(file, picture, 0o644); err != nil {
		t.tb.Fatalf("browser: %v", err)
	}
}
