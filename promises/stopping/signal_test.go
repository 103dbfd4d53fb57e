package stopping

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/observe"
)

func TestNothingStartsOnceRunHasReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- c.Run(ctx) }()
		synctest.Wait()
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			if _, err := orders.Record(ctx, tx, harness.Order{}, compensator.Options{}); err != nil {
				return err
			}
			stop()
			require.NoError(t, <-stopped)
			<-time.After(15 * time.Second) // By now the reserved slot of the entry has been released.
			return nil
		}))
		synctest.Wait()
		require.Zero(t, ran.Total())
		row := store.Rows()[0]
		assert.LessOrEqual(t, row.LeaseLeft, time.Duration(0), "another process may run it at once")
		assert.Zero(t, row.DeliveryCount)
		require.NoError(t, c.Close())
	})
}

// Failure: F80
func TestNoHandlerStartsOnceRunsContextHasEnded(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		proxy, db := w.OpenProxied(true)
		cfg.DB = db
		c := w.New(cfg)
		_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		w.Backlog("close_order", 30)
		late := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("delivery_count=delivery_count+1"), Fault: faultproxy.DelayReply, Delay: 300 * time.Millisecond})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		require.NoError(t, late.Await(t.Context()))
		cancel()
		require.NoError(t, harness.Receive(t, ended))
		require.Zero(t, ran.Total(), "what a late claim brings is not run")
		require.Equal(t, 30, w.Count("common_process_log WHERE state=0 AND lease_until=0 AND delivery_count=0"), "it is free for others at once")
	})
}

// Failure: F80
func TestNoTransactionalHandlerStartsOnceRunsContextHasEnded(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	proxy, db := w.OpenProxied(true)
	cfg := w.QuickConfig()
	cfg.DB = db
	c := w.New(cfg)
	var ran atomic.Int64
	_, err := compensator.HandleTx(t.Context(), c, "close_order", func(context.Context, *compensator.ScopedTx, *compensator.Entry, harness.Order) error {
		ran.Add(1)
		return nil
	}, nil)
	require.NoError(t, err)
	w.Backlog("close_order", 3)
	late := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("SET TRANSACTION ISOLATION LEVEL"), Fault: faultproxy.DelayReply, Delay: 300 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	require.NoError(t, late.Await(t.Context()), "its transaction begins")
	cancel()
	require.NoError(t, harness.Receive(t, ended))
	require.Zero(t, ran.Load())
	require.Equal(t, 3, w.Count("common_process_log WHERE state=0 AND lease_until=0 AND delivery_count=0"), "nothing is spent")
}

func TestBatchThatBreaksAfterTheEndOfRunsContextIsNotRunAgain(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	g := harness.NewGate()
	var called atomic.Int64
	_, err := compensator.HandleBatch(t.Context(), c, "close_order", func(ctx context.Context, items []compensator.Item[harness.Order]) []error {
		called.Add(1)
		assert.NoError(t, g.PassIgnoringContext(items[0].Entry))
		<-ctx.Done() // The attempt has timed out.
		return make([]error, len(items)+1)
	}, &compensator.BatchConfig[harness.Order]{Timeout: 50 * time.Millisecond})
	require.NoError(t, err)
	w.Backlog("close_order", 5)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	g.Await(t)
	cancel()
	g.Open()
	require.NoError(t, harness.Receive(t, ended))
	require.Equal(t, int64(1), called.Load())
	require.Equal(t, 5, w.Count("common_process_log WHERE state=0 AND lease_until=0 AND delivery_count=0 AND process_count=0"), "nothing is spent")
}

// Failure: F80
func TestNoHandlerStartsWhenAStoppedDatabaseComesBackAfterTheSignal(t *testing.T) {
	t.Parallel()
	server := testservers.NewSQL(t)
	w := harness.WorldAt(t, server.Database(t))
	c := w.New(w.QuickConfig())
	var ended atomic.Bool
	var late, ran atomic.Int64
	_, err := compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, harness.Order) error {
		if ended.Load() {
			late.Add(1)
		}
		ran.Add(1)
		return nil
	}, &compensator.HandlerConfig[harness.Order]{Concurrency: 50})
	require.NoError(t, err)
	w.Backlog("close_order", 20_000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	w.Eventually(func() bool { return ran.Load() > 500 }, "it works")
	server.Pause()
	harness.Elapse(200 * time.Millisecond) // The claimed entries are starting.
	cancel()
	harness.Elapse(50 * time.Millisecond)
	ended.Store(true)
	server.Resume()
	require.NoError(t, harness.Receive(t, done))
	require.Zero(t, late.Load(), "handlers that started after the signal")
	require.Zero(t, w.Count("common_process_log WHERE lease_until>0"))
}

// Failure: F80
func TestNoHandlerStartsOnceRunsContextHasEndedWhileItsStartWasHeldUp(t *testing.T) {
	t.Parallel()
	for _, batch := range []bool{false, true} {
		t.Run(map[bool]string{true: "batch", false: "plain"}[batch], func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			cfg := w.QuickConfig()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			var runs atomic.Int64
			cfg.Observer.AttemptStarted = func(observe.AttemptEvent) { cancel() }
			c := w.New(cfg)
			var err error
			if batch {
				_, err = compensator.HandleBatch(ctx, c, "close_order", func(context.Context, []compensator.Item[harness.Order]) []error { runs.Add(1); return nil }, nil)
			} else {
				_, err = compensator.Handle(ctx, c, "close_order", func(context.Context, *compensator.Entry, harness.Order) error { runs.Add(1); return nil }, nil)
			}
			require.NoError(t, err)
			w.Backlog("close_order", 5)
			go func() { ended <- c.Run(ctx) }()
			require.NoError(t, harness.Receive(t, ended))
			require.Zero(t, runs.Load())
			require.Equal(t, 5, w.Count("common_process_log WHERE state=0 AND lease_until=0 AND delivery_count=0"))
		})
	}
}
