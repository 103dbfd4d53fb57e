package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/crowd"
	"github.com/compensator-go/compensator/examples/internal/faults"
	"github.com/compensator-go/compensator/examples/internal/shop"
)

// plain is the same service without the log: ticket, stock and order in one transaction, and nothing else happens.
type plain struct {
	*sale
}

func (p plain) Sell(ctx context.Context, want shop.Purchase) (t shop.Ticket, err error) {
	t = shop.NewTicket(want)
	if err := p.counter.take(ctx, &t); err != nil {
		return t, err
	}
	tx, err := p.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return t, err
	}
	defer tx.Rollback()
	if err := p.InsertTicket(ctx, tx, t); err != nil {
		return t, err
	}
	if err := p.InsertOrder(ctx, tx, t, p.Window); err != nil {
		return t, err
	}
	if err := p.TakeStock(ctx, tx, t); err != nil {
		return t, err
	}
	if err := tx.Commit(); err != nil {
		return t, err
	}
	return t, p.counter.confirm(ctx, t)
}

const (
	speedPairs   = 5
	speedPieces  = 2000
	speedBuyers  = 32 // at once
	speedRefused = 20000
)

// pace is one measurement.
type pace struct {
	perSecond float64
	p99       time.Duration
}

// knock has buyers ask, each once, and returns how fast all were answered with this status.
func knock(b *testing.B, address, goods string, buyers, status int) pace {
	b.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: speedBuyers}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var next atomic.Int64
	var others atomic.Int64
	var all sync.WaitGroup
	took := make([][]time.Duration, speedBuyers)
	began := time.Now()
	for i := range speedBuyers {
		all.Go(func() {
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
	all.Wait()
	span := time.Since(began)
	require.Zero(b, others.Load(), "answers that were not %d", status)
	return pace{perSecond: float64(buyers) / span.Seconds(), p99: crowd.Percentile(slices.Concat(took...), 0.99)}
}

// awaitDone returns when the log has nothing to do but to wait for payments.
func awaitDone(b *testing.B, s *sale) {
	b.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); faults.Pause(b.Context(), 50*time.Millisecond) {
		var left int
		require.NoError(b, s.DB.QueryRow(`SELECT COUNT(*) FROM seckill_log WHERE business_type = ? AND state IN (?, ?)`,
			createType, compensator.Pending, compensator.Retrying).Scan(&left))
		if left == 0 {
			return
		}
	}
	b.Fatal("orders are still on their way")
}

// BenchmarkSale is make bench-seckill: purchases a second with the log and without it, in pairs, each beginning as often;
// and how fast Redis alone refuses.
func BenchmarkSale(b *testing.B) {
	cfg := quick
	cfg.Window, cfg.Fail, cfg.Hopeless, cfg.Resend, cfg.gather, cfg.workers = time.Hour, 0, 0, 5*time.Second, 100*time.Millisecond, 4
	s := service{Service: shop.Service{Servers: throwAway(b)}, settings: cfg}
	db, err := s.OpenDB(shop.PoolSize)
	require.NoError(b, err)
	defer db.Close()
	require.NoError(b, s.prepare(b.Context(), db))
	c := &shop.Counter{Redis: s.OpenRedis(), Name: s.Name}
	defer c.Redis.Close()
	ours, err := newSale(b.Context(), cfg, s.Servers, db, c)
	require.NoError(b, err)
	defer ours.End()
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- ours.Run(ctx) }()
	defer func() { stop(); require.NoError(b, <-ran) }()

	serve := func(way shop.Way) string {
		a := shop.NewAPI(c)
		a.Routes(way)
		server := httptest.NewServer(a.Mux)
		b.Cleanup(server.Close)
		return server.URL
	}
	addresses := []string{serve(ours), serve(plain{ours})}
	for _, gather := range []time.Duration{100 * time.Millisecond, 3 * time.Second} {
		b.Run("orders made after "+gather.String(), func(b *testing.B) {
			ours.gather = gather // nobody asks now
			for range b.N {
				ratios := comparePaces(b, ours, addresses)
				b.ReportMetric(ratios[speedPairs/2], "ratio")
			}
		})
	}
	b.Run("sold out", func(b *testing.B) {
		require.NoError(b, tables.PutOnSale(ctx, db, "nothing", 0))
		require.NoError(b, ours.Rebuild(ctx, "nothing", ""))
		for range b.N {
			refusing := knock(b, addresses[0], "nothing", speedRefused, http.StatusConflict)
			b.ReportMetric(refusing.perSecond, "refusals/s")
			b.Logf("%.0f/s, p99 %v", refusing.perSecond, refusing.p99)
		}
	})
}

// comparePaces measures both ways in turn, and returns the ratios in order.
func comparePaces(b *testing.B, ours *sale, addresses []string) (ratios []float64) {
	for pair := range speedPairs {
		var both [2]pace
		for i := range 2 {
			way := (i + pair) % 2
			goods := rand.Text()
			require.NoError(b, tables.PutOnSale(b.Context(), ours.DB, goods, speedPieces))
			require.NoError(b, ours.Rebuild(b.Context(), goods, ""))
			both[way] = knock(b, addresses[way], goods, speedPieces, http.StatusAccepted)
			awaitDone(b, ours)
		}
		ratio := both[0].perSecond / both[1].perSecond
		ratios = append(ratios, ratio)
		b.Logf("with the log %.0f/s, p99 %v; without %.0f/s, p99 %v; ratio %.2f", both[0].perSecond, both[0].p99, both[1].perSecond, both[1].p99, ratio)
	}
	slices.Sort(ratios)
	return ratios
}
