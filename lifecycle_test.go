package compensator_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

func TestSecondRunIsRefusedWhileTheFirstRuns(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg, ready := w.hooksOnly(w.quick())
	c := w.new(cfg)
	stop := w.run(c)
	ready()
	require.ErrorIs(t, c.Run(t.Context()), compensator.ErrRunning)
	require.NoError(t, stop())
	again := w.run(c)
	require.NoError(t, again(), "one after the other is fine")
}

func TestRunStopsInOrderWithoutLosingWhatItDid(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		c := w.new(cfg)
		_, g := held(t, c, "close_order", compensator.TypeConfig{Concurrency: 50, Timeout: patience}, nil)
		w.backlog("close_order", 300)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		for range 50 {
			g.await(t)
		}
		cancel()
		g.open() // while Run stops
		require.NoError(t, next(t, ended))
		started := 50 + len(g.entered) // a claim may have been on its way
		require.Equal(t, started, w.count("common_process_log WHERE state=1"), "what has finished is recorded")
		require.Equal(t, 300-started, w.count("common_process_log WHERE state=0 AND lease_until=0 AND delivery_count=0"), "the rest is free for others at once")
		require.NoError(t, c.Close())
	})
}

func TestHandlersThatObeyTheStopSpendNothing(t *testing.T) {
	inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
		cfg.StopTimeout = 300 * time.Millisecond
		c := w.new(cfg)
		orders, g := held(t, c, "close_order", compensator.TypeConfig{MaxProcessCount: 1}, nil)
		stop := w.run(c)
		var ids []compensator.EntryID
		for i := range 10 {
			ids = append(ids, putThrough(w, cfg.DB, orders, i, compensator.Options{}))
			g.await(t)
		}
		require.NoError(t, stop())
		for _, id := range ids {
			e := w.entry(c, id)
			require.Equal(t, compensator.Pending, e.State)
			require.Zero(t, e.ProcessCount+e.DeliveryCount)
			require.Empty(t, e.LastError)
			require.Zero(t, w.leaseOf(id), "another process may take it at once")
		}
		next := w.new(cfg)
		_, ran := numbered(t, next, "close_order", compensator.TypeConfig{}, nil)
		w.run(next)
		w.waitAllEnded()
		require.Equal(t, 10, ran.total())
	})
}

func TestHandlersThatFinishWhileRunStopsAreRecorded(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	cfg.StopTimeout = 300 * time.Millisecond
	c := w.new(cfg)
	var started sync.WaitGroup
	started.Add(2)
	orders, err := compensator.Handle(c, "close_order", func(ctx context.Context, _ *compensator.Entry, o order) error {
		started.Done()
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), compensator.ErrStopping)
		if o.Number == 0 {
			return nil // done all the same
		}
		return compensator.Permanent(errors.New("the handler's own reason"))
	}, compensator.TypeConfig{})
	require.NoError(t, err)
	good, bad := put(w, orders, 0, compensator.Options{}), put(w, orders, 1, compensator.Options{})
	stop := w.run(c)
	started.Wait()
	require.NoError(t, stop())
	require.Equal(t, compensator.Succeeded, w.state(good))
	require.Equal(t, compensator.Dead, w.state(bad))
}

func TestStuckHandlersAreNamedWhenRunGivesUp(t *testing.T) {
	inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
		cfg.StopTimeout = 300 * time.Millisecond
		c := w.new(cfg)
		g := newGate()
		g.openAtEnd(t)
		orders, err := compensator.Handle(c, "close_order", func(_ context.Context, e *compensator.Entry, o order) error {
			if o.Number < 2 {
				return g.passDeaf(e)
			}
			return nil
		}, compensator.TypeConfig{})
		require.NoError(t, err)
		stop := w.run(c)
		ids := []compensator.EntryID{putThrough(w, cfg.DB, orders, 0, compensator.Options{}), putThrough(w, cfg.DB, orders, 1, compensator.Options{})}
		g.await(t)
		g.await(t)
		w.waitState(putThrough(w, cfg.DB, orders, 2, compensator.Options{}), compensator.Succeeded)
		var stuck *compensator.StuckError
		require.ErrorAs(t, stop(), &stuck)
		require.Len(t, stuck.Stuck, 2)
		for i, s := range stuck.Stuck {
			require.Equal(t, ids[i], s.ID)
			require.Equal(t, "close_order", s.BusinessType)
			require.Positive(t, s.Running)
			require.ErrorContains(t, stuck, ids[i].String())
		}
		g.open() // too late for Run; the outcome counts all the same
		for _, id := range ids {
			w.waitState(id, compensator.Succeeded)
		}
	})
}

func TestEntriesBornClaimedAndCommittedDuringTheStopAreFree(t *testing.T) {
	w := newWorld(t).withRedis()
	c := w.new(w.quick())
	orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
	stop := w.run(c)
	w.waitState(put(w, orders, 0, compensator.Options{}), compensator.Succeeded)
	tx, err := w.DB.Begin()
	require.NoError(t, err)
	receipt, err := orders.Record(t.Context(), tx, order{}, compensator.Options{})
	require.NoError(t, err)
	require.NoError(t, stop())
	require.NoError(t, tx.Commit())
	w.eventually(func() bool {
		e := w.entry(c, receipt.ID())
		return w.leaseOf(receipt.ID()) == 0 && e.DeliveryCount == 0
	}, "the lease it was born with is given back")
	require.Equal(t, compensator.Pending, w.state(receipt.ID()))
	require.Zero(t, ran.of(receipt.ID()), "no handler starts once Run has ended")
	w.run(c)
	w.waitState(receipt.ID(), compensator.Succeeded)
}

func TestEntriesCommittedWhileRunStopsAllEnd(t *testing.T) {
	inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
		c := w.new(cfg)
		orders, _ := numbered(t, c, "close_order", compensator.TypeConfig{Concurrency: 4}, nil)
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
						_, err := orders.Record(t.Context(), tx, order{Number: i}, compensator.Options{})
						assert.NoError(t, err)
						assert.NoError(t, tx.Commit())
					}
				}
			})
		}
		for i := range 8 {
			stop := w.run(c)
			w.eventually(func() bool { return w.count("common_process_log WHERE state=1") >= 20*(i+1) }, "some are done")
			require.NoError(t, stop())
		}
		close(enough)
		producers.Wait()
		w.run(c)
		w.waitAllEnded()
		require.Zero(t, w.count("common_process_log WHERE state<>1 OR process_count>0"))
	})
}

func TestRunAndCloseEndInAnyOrder(t *testing.T) {
	w := newWorld(t).withRedis()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	t.Run("stopped before it began", func(t *testing.T) {
		require.NoError(t, w.new(w.quick()).Run(ended))
	})
	t.Run("closed twice", func(t *testing.T) {
		c := w.new(w.quick())
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
	})
	t.Run("closed before it ran", func(t *testing.T) {
		c := w.new(w.quick())
		orders, err := compensator.Declare[order](c, "close_order", compensator.TypeConfig{})
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.ErrorIs(t, c.Run(t.Context()), compensator.ErrClosed)
		require.ErrorIs(t, c.Complete(t.Context(), processlog.RowID(1)), compensator.ErrClosed)
		tx := w.begin(w.DB)
		_, err = orders.Record(t.Context(), tx, order{}, compensator.Options{})
		require.ErrorIs(t, err, compensator.ErrClosed)
		require.ErrorIs(t, c.CompleteTx(t.Context(), tx, processlog.RowID(1)), compensator.ErrClosed)
		require.ErrorIs(t, tx.Commit(), compensator.ErrNotRecorded)
	})
	t.Run("stopped by a handler", func(t *testing.T) {
		c := w.new(w.quick())
		ctx, stop := context.WithCancel(t.Context())
		orders, err := compensator.Handle(c, "stopper", func(context.Context, *compensator.Entry, order) error { stop(); return nil }, compensator.TypeConfig{})
		require.NoError(t, err)
		id := put(w, orders, 1, compensator.Options{})
		require.NoError(t, c.Run(ctx))
		require.Equal(t, compensator.Succeeded, w.state(id))
	})
	t.Run("raced", func(t *testing.T) {
		c := w.new(w.quick())
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

func TestRunLeavesNothingBehind(t *testing.T) {
	inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
		once := func() {
			c := w.new(cfg)
			orders, _ := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
			stop := w.run(c)
			w.waitState(putThrough(w, cfg.DB, orders, 1, compensator.Options{}), compensator.Succeeded)
			require.NoError(t, stop())
			require.NoError(t, c.Close())
		}
		once() // the user's own pools are warm
		before := runtime.NumGoroutine()
		for range 10 {
			once()
		}
		w.eventually(func() bool { return runtime.NumGoroutine() <= before+5 }, "no goroutine is left of ten runs; had %d", before)
	})
}
