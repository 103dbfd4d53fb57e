package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/crowd"
	"github.com/compensator-go/compensator/examples/internal/faults"
	"github.com/compensator-go/compensator/examples/internal/servers"
	"github.com/compensator-go/compensator/examples/internal/shop"
)

const (
	speedRounds  = 9
	speedPieces  = 5000
	speedBuyers  = 32 // at the same time
	speedWorkers = 4  // consumers
	speedRefused = 20000
)

type pace struct {
	perSecond float64 // accepted purchases a second, until the last answer
	p99       time.Duration
	orders    float64 // orders a second, from the first request to the last order
}

type arm struct {
	name    string
	address string
	prepare func()
	paces   []pace
}

// BenchmarkSale runs for make bench-seckill.
func BenchmarkSale(b *testing.B) {
	on, ours := openForSpeed(b)
	serve := func(way shop.Way) string {
		a := shop.NewAPI(ours.Counter)
		a.Routes(way)
		server := httptest.NewServer(a.Mux)
		b.Cleanup(server.Close)
		return server.URL
	}
	address := serve(ours)
	// The returned function runs between two measurements. At that time no request reads the field later, so the write
	// needs no lock.
	later := func(d time.Duration) func() { return func() { ours.later = d } }
	arms := []*arm{
		{name: "with the log, orders made meanwhile", address: address, prepare: later(0)},
		{name: "with the log, orders made after the rush (`-later 3s`)", address: address, prepare: later(3 * time.Second)},
		{name: "no log: a message after the commit", address: serve(openUnlogged(b, on, ours))},
		{name: "no log, no message: the order in the purchase's transaction", address: serve(plain{ours})},
	}
	for round := range speedRounds {
		b.Run(fmt.Sprintf("round %d", round+1), func(b *testing.B) { measure(b, ours, arms) })
	}
	b.Run("sold out", func(b *testing.B) {
		require.NoError(b, tables.PutOnSale(b.Context(), ours.DB, "nothing", 0))
		require.NoError(b, ours.Rebuild(b.Context(), "nothing", ""))
		for range b.N {
			refusing := sendRequests(b, address, "nothing", speedRefused, http.StatusConflict)
			b.ReportMetric(refusing.perSecond, "refusals/s")
			b.Logf("%.0f/s, p99 %v", refusing.perSecond, refusing.p99)
		}
	})
	if len(arms[0].paces) > 0 { // Without paces only the sub-benchmark "sold out" ran.
		fmt.Println(table(arms)) // Print the table, because the log of b shows only ten lines.
	}
}

func openForSpeed(b *testing.B) (servers.Servers, *sale) {
	cfg := quick
	cfg.Window, cfg.Fail, cfg.Hopeless, cfg.Lease = time.Hour, 0, 0, 5*time.Second
	cfg.Resend, cfg.gather, cfg.workers = 5*time.Second, 200*time.Millisecond, speedWorkers
	s := service{Service: shop.Service{Servers: throwAway(b)}, settings: cfg}
	db, err := s.OpenDB(shop.PoolSize)
	require.NoError(b, err)
	require.NoError(b, s.prepare(b.Context(), db))
	c := &shop.Counter{Redis: s.OpenRedis(), Name: s.Name}
	ours, err := newSale(b.Context(), cfg, s.Servers, db, c)
	require.NoError(b, err)
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- ours.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		require.NoError(b, <-ran)
		ours.End()
		require.NoError(b, errors.Join(c.Redis.Close(), db.Close()))
	})
	return s.Servers, ours
}

func measure(b *testing.B, ours *sale, arms []*arm) {
	first := len(arms[0].paces)
	for i := range arms {
		a := arms[(first+i)%len(arms)]
		if a.prepare != nil {
			a.prepare()
		}
		goods := rand.Text()
		require.NoError(b, tables.PutOnSale(b.Context(), ours.DB, goods, speedPieces))
		require.NoError(b, ours.Rebuild(b.Context(), goods, ""))
		startedAt := time.Now()
		p := sendRequests(b, a.address, goods, speedPieces, http.StatusAccepted)
		p.orders = speedPieces / awaitOrders(b, ours, goods).Sub(startedAt).Seconds()
		a.paces = append(a.paces, p)
		b.Logf("%-60s %5.0f/s, p99 %5.1f ms, orders %5.0f/s", a.name, p.perSecond, milliseconds(p.p99), p.orders)
		awaitRest(b, ours)
	}
}

// table returns the table of the medians over all rounds, with one line for each version of the service. Two versions
// work without the log, and each of the last two columns belongs to one of them. For each round, a cell of these
// columns divides the accepted purchases per second of the line's version by those of the column's version. The cell
// has the median ratio, and in brackets the lowest and the highest ratio.
func table(arms []*arm) string {
	var t strings.Builder
	t.WriteString("| | accepted | 99 % within | orders made | beside a message without the log | beside no message |\n|---|---|---|---|---|---|\n")
	unlogged, plain := arms[len(arms)-2], arms[len(arms)-1]
	for _, a := range arms {
		fmt.Fprintf(&t, "| %s | %.0f/s | %.0f ms | %.0f/s | %s | %s |\n", a.name,
			median(a.paces, func(p pace) float64 { return p.perSecond }), median(a.paces, func(p pace) float64 { return milliseconds(p.p99) }),
			median(a.paces, func(p pace) float64 { return p.orders }), beside(a, unlogged), beside(a, plain))
	}
	return t.String()
}

func beside(a, other *arm) string {
	if a == other {
		return ""
	}
	ratios := make([]float64, len(a.paces))
	for i := range a.paces {
		ratios[i] = a.paces[i].perSecond / other.paces[i].perSecond
	}
	slices.Sort(ratios)
	return fmt.Sprintf("%.2f (%.2f–%.2f)", ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
}

func median(paces []pace, valueOf func(pace) float64) float64 {
	values := make([]float64, len(paces))
	for i, p := range paces {
		values[i] = valueOf(p)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func sendRequests(b *testing.B, address, goods string, buyers, status int) pace {
	b.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: speedBuyers}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var next atomic.Int64
	var others atomic.Int64
	var group sync.WaitGroup
	took := make([][]time.Duration, speedBuyers)
	startedAt := time.Now()
	for i := range speedBuyers {
		group.Go(func() {
			for n := next.Add(1); n <= int64(buyers); n = next.Add(1) {
				body, _ := json.Marshal(shop.Purchase{Buyer: fmt.Sprintf("b%d", n), Goods: goods})
				asked := time.Now()
				response, err := client.Post(address+"/seckill", "application/json", bytes.NewReader(body))
				if err != nil {
					others.Add(1)
					continue
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				if response.StatusCode != status {
					others.Add(1)
				}
				took[i] = append(took[i], time.Since(asked))
			}
		})
	}
	group.Wait()
	span := time.Since(startedAt)
	require.Zero(b, others.Load(), "answers that were not %d", status)
	return pace{perSecond: float64(buyers) / span.Seconds(), p99: crowd.Percentile(slices.Concat(took...), 0.99)}
}

func awaitOrders(b *testing.B, s *sale, goods string) time.Time {
	return awaitCount(b, s, speedPieces, `SELECT COUNT(*) FROM seckill_orders WHERE goods = ?`, goods)
}

func awaitRest(b *testing.B, s *sale) {
	awaitCount(b, s, 0, `SELECT COUNT(*) FROM seckill_log WHERE business_type = ? AND state IN (?, ?)`, createType, compensator.Pending, compensator.Retrying)
}

func awaitCount(b *testing.B, s *sale, wanted int, query string, args ...any) time.Time {
	b.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); faults.Pause(b.Context(), 10*time.Millisecond) {
		var n int
		require.NoError(b, s.DB.QueryRow(query, args...).Scan(&n))
		if n == wanted {
			return time.Now()
		}
	}
	b.Fatal("not every order was made in time")
	return time.Time{}
}
