package uitest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tab is a tab of a browser that belongs to this test. The tab can reach only the host of the pages, and it records
// errors.
type tab struct {
	t    *testing.T
	ctx  context.Context
	w    *world
	root string // address of all pages

	mu       sync.Mutex // guards the fields below
	problems []string
	asked    []string // addresses that the page requested
}

// oneBrowser allows one browser to run at a time, because two at a time are not faster.
var oneBrowser sync.Mutex

func openTab(t *testing.T, w *world, who string) *tab {
	t.Helper()
	oneBrowser.Lock()
	t.Cleanup(oneBrowser.Unlock)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WSURLReadTimeout(3*time.Minute),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE *.localhost"))
	allocated, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, _ := chromedp.NewContext(allocated)
	t.Cleanup(func() { // Cancel returns when the browser has ended and its files are removed.
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("browser: %v", err)
		}
	})
	b := &tab{t: t, w: w, root: w.url}
	chromedp.ListenTarget(ctx, b.hear)
	home, err := url.Parse(w.url)
	require.NoError(t, err)
	err = chromedp.Run(ctx, log.Enable(), network.Enable(), runtime.Enable(), network.SetCookie(whoCookie, who).WithDomain(home.Hostname()).WithPath("/"))
	require.NoError(t, err, "is chromium installed?")
	timed, cancel := context.WithTimeout(ctx, 10*time.Minute)
	t.Cleanup(cancel)
	b.ctx = timed
	return b
}

func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		b.problems = append(b.problems, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, "exception: "+e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		b.problems = append(b.problems, fmt.Sprintf("console: %s", e.Type))
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
		// Every request must go to the tested pages. The exception are data URLs, from which the browser draws its own
		// controls.
		if !strings.HasPrefix(e.Request.URL, b.root) && !strings.HasPrefix(e.Request.URL, "data:") {
			b.problems = append(b.problems, "asked elsewhere: "+e.Request.URL)
		}
	}
}

func (b *tab) quiet(where string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	assert.Empty(b.t, b.problems, where)
	b.problems = nil
}

func (b *tab) forgive(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = slices.DeleteFunc(b.problems, func(problem string) bool { return strings.Contains(problem, text) })
}

func (b *tab) requests() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.asked)
}

func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Run(b.ctx, actions...), "browser")
}

func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.w.url+path), chromedp.WaitReady("body", chromedp.ByQuery), b.until(`!document.querySelector("#help")?.hidden`))
}

func (b *tab) until(condition string) chromedp.Action {
	return chromedp.Poll(condition, nil, chromedp.WithPollingTimeout(0))
}

// arrive waits until the page has loaded and the condition holds. A page that is being replaced does not answer, so
// arrive repeats the question.
func (b *tab) arrive(condition string) {
	b.t.Helper()
	b.w.until(func() bool {
		var holds bool
		return chromedp.Run(b.ctx, chromedp.Evaluate(`document.readyState === "complete" && (`+condition+`)`, &holds)) == nil && holds
	})
}

func (b *tab) holds(condition string) (holds bool) {
	b.t.Helper()
	b.do(chromedp.Evaluate(condition, &holds))
	return holds
}

func (b *tab) text(expression string) (text string) {
	b.t.Helper()
	b.do(chromedp.Evaluate(expression, &text))
	return text
}

func (b *tab) press(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys))
}

// quicken makes every timer run ten times as fast, in all pages that the tab opens later. So these pages refresh
// themselves ten times as often.
func (b *tab) quicken() {
	b.t.Helper()
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(`const wait = setTimeout; window.setTimeout = (does, ms) => wait(does, ms / 10)`).Do(ctx)
		return err
	}))
}

// rounds waits until the page has had the time for n refreshes. The timer runs in the page, so quicken shortens this
// wait too.
func (b *tab) rounds(n int) {
	b.t.Helper()
	b.do(chromedp.Evaluate(fmt.Sprintf(`new Promise(done => setTimeout(() => done(true), %d))`, n*5000), nil, awaiting))
}

func (b *tab) look(lang, scheme string, width int64) {
	b.t.Helper()
	b.do(emulation.SetDeviceMetricsOverride(width, 800, 1, false),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}),
		emulation.SetTimezoneOverride("Asia/Shanghai"),
		network.SetExtraHTTPHeaders(network.Headers{"Accept-Language": lang}))
}

const pictures = "../../../build/ui"

func (b *tab) photograph(name string) {
	b.t.Helper()
	var picture []byte
	b.do(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		picture, err = page.CaptureScreenshot().WithCaptureBeyondViewport(true).WithFormat(page.CaptureScreenshotFormatPng).Do(ctx)
		return err
	}))
	require.NoError(b.t, os.MkdirAll(pictures, 0o755))
	require.NoError(b.t, os.WriteFile(filepath.Join(pictures, name+".png"), picture, 0o644))
}

func (b *tab) arm() {
	b.t.Helper()
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		_, exception, err := runtime.Evaluate(axe(b.t)).Do(ctx) // Evaluate it through the debugger, which no Content-Security-Policy restricts.
		if err == nil && exception != nil {
			err = exception
		}
		return err
	}))
}

const (
	wcag  = `{runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], resultTypes: ["violations"], iframes: false}`
	looks = `{runOnly: {type: "rule", values: ["color-contrast", "target-size", "link-in-text-block", "scrollable-region-focusable"]}, resultTypes: ["violations"], iframes: false}`
)

func (b *tab) requireFit(width int64, where string) {
	b.t.Helper()
	assert.True(b.t, b.holds(fmt.Sprintf(`document.documentElement.scrollWidth <= %d`, width)), "%s scrolls sideways", where)
}

// Call arm before showWell.
func (b *tab) showWell(name, lang string) {
	b.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 360} {
			shot := fmt.Sprintf("%s-%s-%s-%d", name, lang, scheme, width)
			b.look(lang, scheme, width)
			b.photograph(shot)
			b.accessible(shot, wcag)
			b.requireFit(width, shot)
		}
	}
}

// accessible checks the page against WCAG 2.2 AA, as far as the library axe can check this. The parameter rules is the
// constant wcag or the constant looks. The constant wcag selects all rules of WCAG 2.2 AA. The constant looks selects
// only rules that depend on the appearance of the page.
func (b *tab) accessible(where, rules string) {
	b.t.Helper()
	var found string
	b.do(chromedp.Evaluate(`axe.run(document, `+rules+`).then(r =>
		JSON.stringify(r.violations.map(v => ({id: v.id, help: v.help, nodes: v.nodes.slice(0, 4).map(n => n.html.slice(0, 200) + " " + n.failureSummary)}))))`,
		&found, awaiting))
	var violations []any
	require.NoError(b.t, json.Unmarshal([]byte(found), &violations))
	if len(violations) > 0 {
		pretty, _ := json.MarshalIndent(violations, "", " ")
		assert.Fail(b.t, "not accessible: "+where, string(pretty))
	}
}

func awaiting(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
