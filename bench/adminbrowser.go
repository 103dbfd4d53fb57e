package bench

import (
	"context"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

type visit struct {
	Bytes, Requests, Nodes, Heap float64
	LCP, TBT, CLS, INP           float64 // in ms, except CLS
}

// watching is a script that stores the browser's performance events about a page, from the start of the page.
const watching = `window.seen = {lcp: 0, fcp: 0, long: [], cls: 0, inp: 0};
const watch = (type, note, more) => new PerformanceObserver((list) => list.getEntries().forEach(note)).observe({type, buffered: true, ...more});
watch("largest-contentful-paint", (e) => { seen.lcp = e.startTime; });
watch("paint", (e) => { if (e.name === "first-contentful-paint") seen.fcp = e.startTime; });
watch("longtask", (e) => { seen.long.push(e); });
watch("layout-shift", (e) => { if (!e.hadRecentInput) seen.cls += e.value; });
watch("event", (e) => { if (e.interactionId) seen.inp = Math.max(seen.inp, e.duration); }, {durationThreshold: 16});`

// blocking is a JavaScript expression for the total blocking time: the sum, over all tasks after the first paint, of
// the time beyond 50 ms.
const blocking = `seen.long.filter((e) => e.startTime >= seen.fcp).reduce((sum, e) => sum + e.duration - 50, 0)`

// The processor is slowed down to a quarter of its speed. The network has 1.6 Mbit/s and a latency of 150 ms.
func (a *arena) adminBrowser(h *adminLog) []figure {
	a.Helper()
	server := httptest.NewServer(h.pages)
	defer server.Close()
	var visits []visit
	for range 5 {
		visits = append(visits, a.visit(server.URL+"/ops/"))
	}
	median := func(of func(v visit) float64) float64 {
		var all []float64
		for _, v := range visits {
			all = append(all, of(v))
		}
		return slices.Sorted(slices.Values(all))[len(all)/2]
	}
	return []figure{
		{What: "first load, compressed", Unit: "KB", Most: []float64{50}, Got: []float64{median(func(v visit) float64 { return v.Bytes / 1000 })}},
		{What: "its requests", Most: []float64{5}, Got: []float64{median(func(v visit) float64 { return v.Requests })}},
		{What: "DOM nodes", Most: []float64{1500}, Got: []float64{median(func(v visit) float64 { return v.Nodes })}},
		{What: "JS heap", Unit: "MB", Most: []float64{8}, Got: []float64{median(func(v visit) float64 { return v.Heap / 1e6 })}},
		{What: "processor slowed 4 times, 1.6 Mbit/s, 150 ms: LCP", Unit: "ms", Most: []float64{1500}, Got: []float64{median(func(v visit) float64 { return v.LCP })}},
		{What: "TBT", Unit: "ms", Most: []float64{50}, Got: []float64{median(func(v visit) float64 { return v.TBT })}},
		{What: "CLS", Most: []float64{0.02}, Got: []float64{median(func(v visit) float64 { return v.CLS })}},
		{What: "the longest of three clicks until the next paint; 0: under 16", Unit: "ms", Most: []float64{100}, Got: []float64{median(func(v visit) float64 { return v.INP })}},
	}
}

func (a *arena) visit(address string) (v visit) {
	a.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WSURLReadTimeout(time.Minute), chromedp.WindowSize(1280, 800))
	allocated, stop := chromedp.NewExecAllocator(a.Context(), options...)
	defer stop()
	browser, _ := chromedp.NewContext(allocated, chromedp.WithErrorf(func(string, ...any) {})) // chromedp logs events that it does not know
	defer func() { a.must(chromedp.Cancel(browser)) }()
	a.must(chromedp.Run(browser))
	tab, cancel := context.WithTimeout(browser, time.Minute)
	defer cancel()
	chromedp.ListenTarget(tab, func(event any) {
		if e, ok := event.(*network.EventLoadingFinished); ok { // Events arrive one by one, and all of them arrive before v is read.
			v.Requests++
			v.Bytes += e.EncodedDataLength
		}
	})
	a.must(chromedp.Run(tab, network.Enable(),
		chromedp.ActionFunc(func(ctx context.Context) error {
			_, err := page.AddScriptToEvaluateOnNewDocument(watching).Do(ctx)
			return err
		}),
		emulation.SetCPUThrottlingRate(4),
		network.EmulateNetworkConditions(false, 150, 1_600_000/8, 750_000/8),
		chromedp.Navigate(address), chromedp.WaitReady("#live", chromedp.ByQuery), chromedp.Sleep(3*time.Second)))
	loaded := v
	var seen struct{ LCP, CLS, INP float64 }
	a.must(chromedp.Run(tab,
		chromedp.Evaluate(blocking, &loaded.TBT),
		chromedp.Click("#live-switch", chromedp.ByQuery), chromedp.Sleep(300*time.Millisecond),
		chromedp.Click("#zone button", chromedp.ByQuery), chromedp.Sleep(300*time.Millisecond), // This click changes the time zone, so the page writes all its dates and times again.
		chromedp.Click("#help", chromedp.ByQuery), chromedp.Sleep(500*time.Millisecond),
		chromedp.Evaluate(`({LCP: seen.lcp, CLS: seen.cls, INP: seen.inp})`, &seen),
		chromedp.Evaluate(`document.querySelectorAll("*").length`, &loaded.Nodes),
		chromedp.ActionFunc(func(ctx context.Context) (err error) {
			if err = heapprofiler.CollectGarbage().Do(ctx); err == nil {
				loaded.Heap, _, _, _, err = runtime.GetHeapUsage().Do(ctx)
			}
			return err
		})))
	loaded.LCP, loaded.CLS, loaded.INP = seen.LCP, seen.CLS, seen.INP
	return loaded
}
