package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/compensator-go/compensator"
)

type adminPage struct {
	what, path string
	times      []float64 // limits in ms for p50 and p95
	statements float64
	rows       float64
	of         func(h *adminLog) http.Handler
}

func unvisited(h *adminLog) http.Handler { return h.newPages() }

// visited returns pages that have served one request already, so they have read the business types.
func visited(h *adminLog) http.Handler {
	pages := h.newPages()
	h.getPage(pages, "trail")
	return pages
}

// watched returns the pages that all simulated viewers share. These pages have just answered the same request for
// another viewer and still hold the data, so a request needs no statement.
func watched(h *adminLog) http.Handler { return h.pages }

func (a *arena) adminPages(h *adminLog) (figures []figure) {
	a.Helper()
	listed, rows := []float64{15, 50}, 5000.0
	cases := []float64{40, 120}
	var dead, ended uint64
	a.must(a.admin.QueryRowContext(a.Context(), "SELECT MAX(entry_id) FROM common_process_log_case").Scan(&dead))
	a.must(a.admin.QueryRowContext(a.Context(), "SELECT id FROM common_process_log WHERE state=1 LIMIT 1").Scan(&ended))
	older := "entries?state=dead&c=" + h.cursor("entries?state=dead")
	for _, p := range []adminPage{
		{"overview, read", "", []float64{100, 250}, 12, 200_000, unvisited},
		{"overview, shared", "", []float64{5, 15}, 0, 0, watched},
		{"entries, newest", "entries", listed, 2 + 4, rows, visited},
		{"entries of a type", "entries?type=" + adminType(5), listed, 3, rows, visited},
		{"entries of a type and state", "entries?state=succeeded&type=" + adminType(5), listed, 3, rows, visited},
		{"entries of a state, of all types", "entries?state=dead", listed, 2 + 1, rows, visited},
		{"the page after", older, listed, 2 + 1, rows, visited},
		{"an entry, dead", fmt.Sprintf("entries/%d", dead), listed, 7, rows, visited},
		{"an entry, succeeded", fmt.Sprintf("entries/%d", ended), listed, 7, rows, visited},
		{"cases by failure", "cases", cases, 4, rows, visited},
		{"cases by due time", "cases/due", cases, 4, rows, visited},
		{"cases of a failure", fmt.Sprintf("cases/due?failure=%016x&type=%s", 3, adminType(0)), cases, 4, rows, visited},
		{"trail", "trail", listed, 1, rows, visited},
		{"audit log of one person", "trail?actor=mei", listed, 1, rows, visited},
	} {
		figures = append(figures, a.adminPage(h, p)...)
	}
	return append(figures, a.adminTypes(h))
}

// adminTypes counts the statements and rows of the query for the business types. An Admin runs this query at most once
// in five seconds, and requests wait for its result.
func (a *arena) adminTypes(h *adminLog) figure {
	pages := unvisited(h)
	first, firstRows := a.statementsOf(func() { h.getPage(pages, "trail") })
	second, secondRows := a.statementsOf(func() { h.getPage(pages, "trail") })
	return figure{What: "query for the types, at most once in 5 s: statements / rows read", Got: []float64{first - second, firstRows - secondRows}}
}

var nextLink = regexp.MustCompile(`[?&;]c=([^&"]+)[^"]*" rel="next"`)

func (h *adminLog) cursor(path string) string {
	found := nextLink.FindStringSubmatch(h.getPage(h.pages, path, "Accept-Encoding", "identity").Body.String())
	if found == nil {
		h.a.Fatalf("/%s has no next page", path)
	}
	return found[1]
}

// adminPage measures one page. It takes the number of rows read from the Handler_read counters of the server.
func (a *arena) adminPage(h *adminLog, p adminPage) []figure {
	for range 5 { // Warm the caches of the server.
		h.getPage(p.of(h), p.path)
	}
	times := make([]time.Duration, 60)
	for i := range times {
		pages := p.of(h)
		began := time.Now()
		h.getPage(pages, p.path)
		times[i] = time.Since(began)
	}
	pages := p.of(h)
	statements, rows := a.statementsOf(func() { h.getPage(pages, p.path) })
	return []figure{
		{What: p.what + ": p50 / p95", Unit: "ms", Most: p.times, Got: quantiles(times)},
		{What: p.what + ": statements / rows read", Most: []float64{p.statements, p.rows}, Got: []float64{statements, rows}},
	}
}

// statementsOf returns the number of statements, and of rows read, while run runs. The caller ensures that nothing else
// uses the database meanwhile.
func (a *arena) statementsOf(run func()) (statements, rows float64) {
	own := a.workOf(func() {})
	all := a.workOf(run)
	return all.statements - own.statements, max(0, all.rows-own.rows)
}

func (a *arena) workOf(run func()) serverWork {
	before := a.serverWork()
	run()
	after := a.serverWork()
	return serverWork{after.statements - before.statements, after.rows - before.rows, after.redis - before.redis, after.cpu - before.cpu}
}

const (
	viewers   = 50
	viewEvery = 5 * time.Second
	viewFor   = 6 * viewEvery
)

// watch lets the viewers load the overview again and again until ctx ends. Each viewer sends the ETag of its last
// answer with its next request, so that the answer is short if the page has not changed.
func (h *adminLog) watch(ctx context.Context) {
	var group sync.WaitGroup
	for v := range viewers {
		group.Go(func() {
			for wait := time.Duration(v) * viewEvery / viewers; ; wait = viewEvery {
				select {
				case <-ctx.Done():
					return
				case <-time.After(wait):
				}
				h.seen[v] = h.getPage(h.pages, "", "X-Who", fmt.Sprint("viewer ", v), "If-None-Match", h.seen[v]).Header().Get("ETag")
			}
		})
	}
	group.Wait()
}

func (h *adminLog) watchFor(d time.Duration) {
	ctx, cancel := context.WithTimeout(h.a.Context(), d)
	defer cancel()
	h.watch(ctx)
}

// spentIn calls run, which must take d. It returns the statements per second, and the CPU seconds per second that the
// database and this process used.
func (a *arena) spentIn(d time.Duration, run func()) serverWork {
	own := processCPU()
	all := a.workOf(run)
	return serverWork{statements: all.statements / d.Seconds(), cpu: (all.cpu + processCPU() - own) / d.Seconds()}
}

func (a *arena) adminViewers(h *adminLog) []figure {
	a.Helper()
	h.watchFor(viewEvery) // The first requests load the whole page, so that only refreshes are measured.
	quiet := a.spentIn(viewFor, func() { time.Sleep(viewFor) })
	watched := a.spentIn(viewFor, func() { h.watchFor(viewFor) })
	server := httptest.NewServer(h.pages)
	defer server.Close()
	first, all := a.wire(server, "")
	_, unchanged := a.wire(server, "", "If-None-Match", first.Header.Get("ETag"))
	return []figure{
		{What: fmt.Sprintf("%d viewers of the overview, every %v: statements", viewers, viewEvery), Unit: "/s", Most: []float64{6}, Got: []float64{watched.statements - quiet.statements}},
		{What: "their processor: the process and the database", Unit: "% of a core", Most: []float64{5}, Got: []float64{100 * (watched.cpu - quiet.cpu)}},
		{What: "a refresh: unchanged / all of it", Unit: "bytes", Most: []float64{300, 12_000}, Got: []float64{float64(unchanged), float64(all)}},
	}
}

// adminBeside measures how much viewers of the pages slow down the transactions of producers. In each pair, producers
// run once beside viewers and once without viewers. The ratio of a pair divides the 99th percentile of the durations
// beside viewers by the 99th percentile without viewers.
func (a *arena) adminBeside(h *adminLog, pairs, n int) []figure {
	a.Helper()
	h.watchFor(viewEvery) // The viewers load the page before the measurement.
	ratios := make([]float64, pairs)
	for pair := range ratios {
		var slowest [2]float64
		for turn := range slowest {
			watched := (pair + turn) % 2
			ctx, cancel := context.WithCancel(a.Context())
			var people sync.WaitGroup
			if watched == 1 {
				people.Go(func() { h.watch(ctx) })
			}
			slowest[watched] = a.slowestHundredth(h.library, n)
			cancel()
			people.Wait()
		}
		ratios[pair] = slowest[1] / slowest[0]
		a.Logf("producers beside viewers, pair %d: %.1f ms, without %.1f ms", pair+1, slowest[1], slowest[0])
	}
	s := spreadOf(ratios)
	return []figure{{What: fmt.Sprintf("producers at full load beside %d viewers: the 99th percentile ÷ that without: median, least, most", viewers),
		Most: []float64{1.05}, Got: []float64{s.Median, s.Min, s.Max}}}
}

// The entries of slowestHundredth are due two days later, so none of them runs.
func (a *arena) slowestHundredth(l *library, n int) float64 {
	a.Helper()
	var mu sync.Mutex
	took := make([]time.Duration, 0, n)
	_, err := share(n, producers, func(int) error {
		began := time.Now()
		_, err := l.record(a.Context(), 1, compensator.Options{Delay: 48 * time.Hour})
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(began))
		return err
	})
	a.must(err)
	slices.Sort(took)
	return took[len(took)*99/100].Seconds() * 1000
}

func (a *arena) wire(server *httptest.Server, path string, set ...string) (*http.Response, int) {
	a.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(a.Context(), "tcp", strings.TrimPrefix(server.URL, "http://"))
	a.must(err)
	defer conn.Close()
	r, err := http.NewRequestWithContext(a.Context(), http.MethodGet, server.URL+"/ops/"+path, nil)
	a.must(err)
	r.Close = true
	r.Header.Set("Accept-Encoding", "gzip")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("X-Who", "somebody")
	for i := 0; i < len(set); i += 2 {
		r.Header.Set(set[i], set[i+1])
	}
	a.must(r.Write(conn))
	all, err := io.ReadAll(conn)
	a.must(err)
	got, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(all)), r)
	a.must(err)
	a.must(got.Body.Close())
	return got, len(all)
}

// adminIdle measures the statements of a process at rest. It first postpones the overdue entries, so that none of them
// runs meanwhile.
func (a *arena) adminIdle(rest time.Duration) []figure {
	a.Helper()
	a.exec("UPDATE common_process_log SET next_at=next_at+86400000 WHERE state IN (0,-1,-3) AND business_type=?", adminType(1))
	a.operations = everyOperation()
	defer func() { a.operations = nil }()
	i := a.measureIdle(0, 1, rest)
	return []figure{{What: "a process at rest, with all of Operations: statements", Unit: "/s", Most: []float64{0.25}, Got: []float64{i.Statements}}}
}
