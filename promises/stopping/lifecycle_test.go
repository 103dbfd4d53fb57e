package stopping

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

// Failure: F83
func TestSecondRunIsRefusedWhileTheFirstRuns(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg, ready := w.HooksOnlyConfig(w.QuickConfig())
	c := w.New(cfg)
	stop := w.Run(c)
	ready()
	require.ErrorIs(t, c.Run(t.Context()), compensator.ErrRunning)
	require.NoError(t, stop())
	again := w.Run(c)
	require.NoError(t, again(), "one after the other is fine")
}

// Failure: F80
func TestRunStopsInOrderWithoutLosingWhatItDid(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		_, g := harness.HandleGated(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: 50, Timeout: harness.Timeout}, nil)
		w.Backlog("close_order", 300)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		for range 50 {
			g.Await(t)
		}
		cancel()
		g.Open() // Open the gate while Run stops.
		require.NoError(t, harness.Receive(t, ended))
		started := 50 + len(g.Entered) // A claim may have been under way when Run was stopped.
		require.Equal(t, started, w.Count("common_process_log WHERE state=1"), "what has finished is recorded")
		require.Equal(t, 300-started, w.Count("common_process_log WHERE state=0 AND lease_until=0 AND delivery_count=0"), "the rest is free for others at once")
		require.NoError(t, c.Close())
	})
}

// Failure: F80
func TestHandlersThatObeyTheStopSpendNothing(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg.StopTimeout = 300 * time.Millisecond
		c := w.New(cfg)
		orders, g := harness.HandleGated(t, c, "close_order", compensator.HandlerConfig[harness.Order]{MaxAttempts: 1}, nil)
		stop := w.Run(c)
		var ids []compensator.EntryID
		for i := range 10 {
			ids = append(ids, w.RecordThrough(cfg.DB, orders, i, compensator.Options{}))
			g.Await(t)
		}
		require.NoError(t, stop())
		for _, id := range ids {
			e := w.Entry(c, id)
			require.Equal(t, compensator.Pending, e.State)
			require.Zero(t, e.ProcessCount+e.DeliveryCount)
			require.Contains(t, e.LastError, "ended with no outcome", "the handler may have had its effect")
			require.Zero(t, w.LeaseOf(id), "another process may take it at once")
		}
		next := w.New(cfg)
		_, ran := harness.HandleCounted(t, next, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(next)
		w.WaitAllEnded()
		require.Equal(t, 10, ran.Total())
	})
}

// Failure: F80
func TestHandlersThatFinishWhileRunStopsAreRecorded(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	cfg.StopTimeout = 300 * time.Millisecond
	c := w.New(cfg)
	var started sync.WaitGroup
	started.Add(2)
	orders, err := compensator.Handle(t.Context(), c, "close_order", func(ctx context.Context, _ *compensator.Entry, o harness.Order) error {
		started.Done()
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), compensator.ErrStopping)
		if o.Number == 0 {
			return nil // The handler succeeds, although its context is cancelled.
		}
		return compensator.Permanent(errors.New("the handler's own reason"))
	}, nil)
	require.NoError(t, err)
	good, bad := w.Record(orders, 0, compensator.Options{}), w.Record(orders, 1, compensator.Options{})
	stop := w.Run(c)
	started.Wait()
	require.NoError(t, stop())
	require.Equal(t, compensator.Succeeded, w.State(good))
	require.Equal(t, compensator.Dead, w.State(bad))
}

// Failure: F62, F81
func TestStuckHandlersAreNamedWhenRunGivesUp(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg.StopTimeout = 300 * time.Millisecond
		c := w.New(cfg)
		g := harness.NewGate()
		g.OpenAtEnd(t)
		orders, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, o harness.Order) error {
			if o.Number < 2 {
				return g.PassIgnoringContext(e)
			}
			return nil
		}, nil)
		require.NoError(t, err)
		stop := w.Run(c)
		ids := []compensator.EntryID{w.RecordThrough(cfg.DB, orders, 0, compensator.Options{}), w.RecordThrough(cfg.DB, orders, 1, compensator.Options{})}
		g.Await(t)
		g.Await(t)
		w.WaitState(w.RecordThrough(cfg.DB, orders, 2, compensator.Options{}), compensator.Succeeded)
		var stuck *compensator.StuckError
		require.ErrorAs(t, stop(), &stuck)
		require.Len(t, stuck.Stuck, 2)
		for i, s := range stuck.Stuck {
			require.Equal(t, ids[i], s.ID)
			require.Equal(t, "close_order", s.BusinessType)
			require.Positive(t, s.Running)
			require.ErrorContains(t, stuck, ids[i].String())
		}
		g.Open() // It is too late for Run to store the outcome, but the outcome must count nevertheless.
		for _, id := range ids {
			w.WaitState(id, compensator.Succeeded)
		}
	})
}

// Failure: F80
func TestEntriesInsertedWithALeaseAndCommittedDuringTheStopAreFree(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c := w.New(w.QuickConfig())
	orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	stop := w.Run(c)
	w.WaitState(w.Record(orders, 0, compensator.Options{}), compensator.Succeeded)
	tx, err := w.DB.Begin()
	require.NoError(t, err)
	receipt, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
	require.NoError(t, err)
	require.NoError(t, stop())
	require.NoError(t, tx.Commit())
	w.Eventually(func() bool {
		e := w.Entry(c, receipt.ID())
		return w.LeaseOf(receipt.ID()) == 0 && e.DeliveryCount == 0
	}, "the lease from the insert is released")
	require.Equal(t, compensator.Pending, w.State(receipt.ID()))
	require.Zero(t, ran.Of(receipt.ID()), "no handler starts once Run has ended")
	w.Run(c)
	w.WaitState(receipt.ID(), compensator.Succeeded)
}

// The statement with which the process reads the entry back hangs until Run returns.
func TestClaimThatIsNotAnsweredUntilRunReturnsIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := compensatortest.NewMemoryStore()
		asked, answered := make(chan struct{}), make(chan struct{})
		var once sync.Once
		store := &harness.HookedStore{Store: memory, OnClaim: func() error {
			once.Do(func() {
				close(asked)
				<-answered
			})
			return nil
		}}
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, StopTimeout: 3 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		orders, err := compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, harness.Order) error {
			assert.Fail(t, "Run has ended")
			return nil
		}, nil)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		synctest.Wait()
		harness.RecordIn(t, c, memory, orders.Entry(harness.Order{}, compensator.Options{}))
		<-asked
		stop()
		require.ErrorContains(t, <-ended, "claims under way were not answered")
		close(answered)
		require.NoError(t, c.Close())
		row := memory.Rows()[0]
		require.Equal(t, []any{compensator.Pending, 0, time.Duration(0)}, []any{row.State, row.DeliveryCount, max(0, row.LeaseLeft)}, "it is given back")
	})
}

// Failure: F80
func TestEntriesCommittedWhileRunStopsAllEnd(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: 4}, nil)
		var producers sync.WaitGroup
		enough := make(chan struct{})
		for range 2 {
			producers.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-enough:
						return
					default:
					}
					if tx, err := cfg.DB.Begin(); assert.NoError(t, err) {
						_, err := orders.Record(t.Context(), tx, harness.Order{Number: i}, compensator.Options{})
						assert.NoError(t, err)
						assert.NoError(t, tx.Commit())
					}
				}
			})
		}
		for i := range 8 {
			stop := w.Run(c)
			w.Eventually(func() bool { return w.Count("common_process_log WHERE state=1") >= 20*(i+1) }, "some are done")
			require.NoError(t, stop())
		}
		close(enough)
		producers.Wait()
		w.Run(c)
		w.WaitAllEnded()
		require.Zero(t, w.Count("common_process_log WHERE state<>1 OR process_count>0"))
	})
}

// Failure: F83
func TestRunAndCloseEndInAnyOrder(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	t.Run("stopped before it began", func(t *testing.T) {
		require.NoError(t, w.New(w.QuickConfig()).Run(ended))
	})
	t.Run("closed twice", func(t *testing.T) {
		c := w.New(w.QuickConfig())
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
	})
	t.Run("closed before it ran", func(t *testing.T) {
		c := w.New(w.QuickConfig())
		orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.ErrorIs(t, c.Run(t.Context()), compensator.ErrClosed)
		require.ErrorIs(t, harness.ErrOf(c.Complete(t.Context(), processlog.RowID(1))), compensator.ErrClosed)
		tx := w.Begin(w.DB)
		_, err = orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
		require.ErrorIs(t, err, compensator.ErrClosed)
		require.ErrorIs(t, harness.ErrOf(c.CompleteTx(t.Context(), tx, processlog.RowID(1))), compensator.ErrClosed)
		require.ErrorIs(t, tx.Commit(), compensator.ErrNotRecorded)
	})
	t.Run("stopped by a handler", func(t *testing.T) {
		c := w.New(w.QuickConfig())
		ctx, stop := context.WithCancel(t.Context())
		orders, err := compensator.Handle(ctx, c, "stopper", func(context.Context, *compensator.Entry, harness.Order) error { stop(); return nil }, nil)
		require.NoError(t, err)
		id := w.Record(orders, 1, compensator.Options{})
		require.NoError(t, c.Run(ctx))
		require.Equal(t, compensator.Succeeded, w.State(id))
	})
	t.Run("raced", func(t *testing.T) {
		c := w.New(w.QuickConfig())
		var refused, ran atomic.Int32
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go cancel()
				switch err := c.Run(ctx); {
				case err == nil:
					ran.Add(1)
				case errors.Is(err, compensator.ErrRunning):
					refused.Add(1)
				default:
					assert.NoError(t, err)
				}
			})
		}
		all.Wait()
		require.Equal(t, int32(16), ran.Load()+refused.Load())
		require.Positive(t, ran.Load())
	})
}

// Failure: F83
func TestRunLeavesNothingBehind(t *testing.T) {
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		once := func() {
			c := w.New(cfg)
			orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
			stop := w.Run(c)
			w.WaitState(w.RecordThrough(cfg.DB, orders, 1, compensator.Options{}), compensator.Succeeded)
			require.NoError(t, stop())
			require.NoError(t, c.Close())
		}
		once() // Run once before counting, so that the user's own connections are open.
		before := runtime.NumGoroutine()
		for range 10 {
			once()
		}
		w.Eventually(func() bool { return runtime.NumGoroutine() <= before+5 }, "no goroutine is left of ten runs; had %d", before)
	})
}
