package leases

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Failure: F52
func TestLeaseIsRenewedWhileTheHandlerRuns(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg.Lease = time.Second
		c, other := w.New(cfg), w.New(cfg)
		orders, g := harness.HandleGated(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		_, ran := harness.HandleCounted(t, other, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(c)
		id := w.RecordThrough(cfg.DB, orders, 1, compensator.Options{})
		g.Await(t)
		w.Run(other) // The other instance would run the entry if its lease ended.
		last, version := w.LeaseOf(id), w.Entry(c, id).Version
		for range 4 {
			w.Eventually(func() bool { return w.LeaseOf(id) > last }, "the lease is renewed")
			last = w.LeaseOf(id)
		}
		require.Equal(t, version, w.Entry(c, id).Version, "a renewal is no step of the entry's")
		g.Open()
		w.WaitState(id, compensator.Succeeded)
		require.Zero(t, ran.Total(), "no other process ran it")
		require.Equal(t, version+1, w.Entry(c, id).Version)
	})
}

// The handler of the first instance waits at a gate and ignores its context.
type overtaking struct {
	*harness.World
	first, second *compensator.Compensator
	id            compensator.EntryID
	gate          *harness.Gate
	dropped       chan observe.SettledEvent // events of outcomes that the first instance dropped
	settled       chan observe.SettledEvent // events of outcomes that the first instance stored
	ran           *harness.Calls            // calls in the second instance
}

// overtake lets the second instance run an entry while the first instance still runs the entry. It returns when the
// outcome of the second instance is stored. The parameter stale is the result of the handler in the first instance, and
// the parameter fresh is the result in the second.
func overtake(t *testing.T, w *harness.World, cfg compensator.Config, typ compensator.HandlerConfig[harness.Order], stale, fresh error) *overtaking {
	t.Helper()
	cfg.Lease = 30 * time.Second // The lease is long enough that it is not renewed during the test.
	o := &overtaking{World: w, gate: harness.NewGate(), dropped: make(chan observe.SettledEvent, 10), settled: make(chan observe.SettledEvent, 10)}
	o.gate.OpenAtEnd(t)
	o.second = w.New(cfg)
	cfg.Observer.OutcomeDropped = func(e observe.SettledEvent) { o.dropped <- e }
	cfg.Observer.Settled = func(e observe.SettledEvent) { o.settled <- e }
	o.first = w.New(cfg)
	_, o.ran = harness.HandleCounted(t, o.second, "close_order", typ, func(*compensator.Entry, int) error { return fresh })
	typ.Concurrency = 1 // With one slot, the first instance cannot claim the entry again.
	orders, err := compensator.Handle(t.Context(), o.first, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
		_ = o.gate.PassIgnoringContext(e)
		return stale
	}, &typ)
	require.NoError(t, err)
	w.Run(o.first)
	o.id = w.RecordThrough(cfg.DB, orders, 1, compensator.Options{})
	o.gate.Await(t)
	w.Run(o.second)
	version := w.Entry(o.second, o.id).Version
	w.EndLease(o.id)
	w.Eventually(func() bool { return w.Entry(o.second, o.id).Version >= version+2 }, "the second instance runs it")
	return o
}

// Failure: F51
func TestStaleFailureIsDropped(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		o := overtake(t, w, cfg, compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(time.Hour)}, compensator.Permanent(errors.New("stale")), errors.New("fresh"))
		stored := w.Row(o.id)
		o.gate.Open()
		require.Equal(t, compensator.Retrying, harness.Receive(t, o.dropped).State)
		require.Equal(t, stored, w.Row(o.id))
		e := w.Entry(o.first, o.id)
		require.Equal(t, 1, e.ProcessCount, "one failure was counted, not two")
		require.Equal(t, "fresh", e.LastError)
	})
}

// Failure: F51
func TestStaleSuccessIsAbsorbedWhileTheEntryIsOnItsWay(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		o := overtake(t, w, cfg, compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(time.Hour)}, nil, errors.New("fresh"))
		o.gate.Open()
		require.Equal(t, compensator.Succeeded, harness.Receive(t, o.settled).State, "the work is done, even if another process holds the lease")
		require.Equal(t, 1, w.Entry(o.first, o.id).ProcessCount)
	})
}

// Failure: F70
func TestStaleSuccessAfterTheExhaustionDoesNotStopTheCompensation(t *testing.T) {
	t.Parallel()
	var undone harness.Calls
	typ := compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, Compensate: func(_ context.Context, e *compensator.Entry, _ harness.Order) error { undone.Add(e.ID); return nil }}
	w := harness.NewWorld(t).WithRedis()
	o := overtake(t, w, w.QuickConfig(), typ, nil, errors.New("fresh"))
	w.WaitState(o.id, compensator.Compensated)
	stored := w.Row(o.id)
	o.gate.Open()
	require.Equal(t, compensator.Compensated, harness.Receive(t, o.dropped).State)
	require.Equal(t, stored, w.Row(o.id))
	require.Equal(t, 1, undone.Of(o.id))
}

// Failure: F51, F70
func TestExhaustionLosesAgainstASuccessRecordedMeanwhile(t *testing.T) {
	t.Parallel()
	var undone harness.Calls
	typ := compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, Compensate: func(_ context.Context, e *compensator.Entry, _ harness.Order) error { undone.Add(e.ID); return nil }}
	w := harness.NewWorld(t).WithRedis()
	o := overtake(t, w, w.QuickConfig(), typ, errors.New("stale, and the last"), nil)
	require.Equal(t, compensator.Succeeded, w.State(o.id))
	o.gate.Open()
	require.Equal(t, compensator.Succeeded, harness.Receive(t, o.dropped).State)
	require.Zero(t, undone.Total(), "a success is never undone")
}

// Failure: F51
func TestStaleTransactionalEffectIsRolledBack(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg.Lease = 30 * time.Second
		g := harness.NewGate()
		g.OpenAtEnd(t)
		dropped := make(chan observe.SettledEvent, 10)
		second := w.New(cfg)
		cfg.Observer.OutcomeDropped = func(e observe.SettledEvent) { dropped <- e }
		first := w.New(cfg)
		orders := harness.HandleTransactional(t, first, compensator.HandlerConfig[harness.Order]{Concurrency: 1}, func(_ context.Context, _ *compensator.ScopedTx, e *compensator.Entry) error {
			return g.PassIgnoringContext(e)
		})
		_ = harness.HandleTransactional(t, second, compensator.HandlerConfig[harness.Order]{}, func(context.Context, *compensator.ScopedTx, *compensator.Entry) error { return nil })
		w.Run(first)
		id := w.RecordThrough(cfg.DB, orders, 1, compensator.Options{})
		g.Await(t)
		w.Run(second)
		w.EndLease(id)
		w.WaitState(id, compensator.Succeeded)
		g.Open()
		harness.Receive(t, dropped)
		require.Equal(t, 1, w.Count("effects"))
	})
}

// Failure: F52
func TestHandlerIsToldThatItsLeaseIsLost(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	cfg.Lease = time.Second
	c := w.New(cfg)
	causes := make(chan error, 10)
	orders, err := compensator.Handle(t.Context(), c, "close_order", func(ctx context.Context, _ *compensator.Entry, _ harness.Order) error {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}, nil)
	require.NoError(t, err)
	w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	w.Eventually(func() bool { return w.LeaseOf(id) > 0 }, "it runs")
	// Change the row as another process does when a person ends the entry.
	w.Exec("UPDATE common_process_log SET version=version+1, state=3, ended_by='person', lease_until=0, delivery_count=0 WHERE id=?", id.Row())
	require.ErrorIs(t, harness.Receive(t, causes), compensator.ErrLeaseLost)
}

// Failure: F62
func TestStuckHandlerDoesNotHoldItsEntryForEver(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg.Lease = time.Second
		other := w.New(cfg)
		stuck := make(chan observe.AttemptEvent, 10)
		cfg.Observer.Stuck = func(e observe.AttemptEvent) { stuck <- e }
		cfg.Observer.OutcomeDropped = func(observe.SettledEvent) {}
		c := w.New(cfg)
		g := harness.NewGate()
		g.OpenAtEnd(t)
		orders, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
			return g.PassIgnoringContext(e)
		}, &compensator.HandlerConfig[harness.Order]{Timeout: 50 * time.Millisecond, Concurrency: 1})
		require.NoError(t, err)
		_, ran := harness.HandleCounted(t, other, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(c)
		id := w.RecordThrough(cfg.DB, orders, 1, compensator.Options{})
		g.Await(t)
		require.Equal(t, id, harness.Receive(t, stuck).ID)
		health := c.Health(t.Context())
		if assert.Len(t, health.Stuck, 1) {
			require.Equal(t, id, health.Stuck[0].ID)
			require.Equal(t, "close_order", health.Stuck[0].BusinessType)
		}
		w.Run(other)
		w.WaitState(id, compensator.Succeeded)
		require.Equal(t, 1, ran.Of(id))
		require.Empty(t, stuck, "it is reported once")
		g.Open()
	})
}

func TestEntryWhoseOutcomeWaitsToBeStoredIsNotRunElsewhere(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]error{"success": nil, "failure": compensator.Permanent(errors.New("no"))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			proxy, db := w.OpenProxied(true)
			cfg := w.QuickConfig()
			cfg.Lease = 3 * time.Second // So long that a busy machine renews it in time after the connections were cut.
			other := w.New(cfg)
			cfg.DB = db
			cfg.Observer.OutcomeDropped = func(observe.SettledEvent) { t.Error("the outcome was dropped") }
			c := w.New(cfg)
			orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, func(*compensator.Entry, int) error { return verdict })
			_, ranElsewhere := harness.HandleCounted(t, other, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
			held := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("delivery_count=0"), Fault: faultproxy.DropRequest, Hang: true})
			w.Run(c)
			id := w.Record(orders, 1, compensator.Options{})
			require.NoError(t, held.Await(t.Context()))
			w.Run(other)
			for range 3 {
				end := w.LeaseOf(id)
				w.Eventually(func() bool { return w.LeaseOf(id) > end }, "the lease is renewed")
			}
			proxy.Heal()
			proxy.Cut() // The statement that now stores the outcome fails. The library sends the statement again.
			w.WaitAllEnded()
			require.Equal(t, 1, ran.Of(id))
			require.Zero(t, ranElsewhere.Total())
		})
	}
}

// Failure: F61
func TestStuckSuspectLetsTheNextOneIn(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	stuck := make(chan observe.AttemptEvent, 10)
	cfg.Observer.Stuck = func(e observe.AttemptEvent) { stuck <- e }
	c := w.New(cfg)
	g := harness.NewGate()
	var ran harness.Calls
	orders, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, o harness.Order) error {
		ran.Add(e.ID)
		if o.Number == 0 {
			return g.PassIgnoringContext(e)
		}
		return nil
	}, &compensator.HandlerConfig[harness.Order]{Timeout: 50 * time.Millisecond})
	require.NoError(t, err)
	deaf := w.Record(orders, 0, compensator.Options{})
	w.Exec("UPDATE common_process_log SET delivery_count=2, next_at=next_at-1000")
	next := w.Record(orders, 1, compensator.Options{Delay: time.Second})
	w.Exec("UPDATE common_process_log SET delivery_count=2 WHERE id=?", next.Row())
	w.Run(c)
	g.OpenAtEnd(t) // Open the gate before Run stops, because Run waits for the handler.
	g.Await(t)
	require.Equal(t, deaf, harness.Receive(t, stuck).ID)
	w.WaitState(next, compensator.Succeeded)
	require.Equal(t, 1, ran.Of(next))
}

// Failure: F56
func TestEntryTwiceOnItsWayRunsOnce(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	c, other := w.New(cfg), w.New(cfg)
	orders, g := harness.HandleGated(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	_, ran := harness.HandleCounted(t, other, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	var ids []compensator.EntryID
	for i := range 10 {
		ids = append(ids, w.Record(orders, i, compensator.Options{}))
	}
	queue, err := redisqueue.Open(w.Redis, w.Name)
	require.NoError(t, err)
	t.Cleanup(func() { _ = queue.Close() })
	for range 10 {
		g.Await(t)
	}
	w.Run(other)
	for _, id := range ids {
		_, _, err := queue.Enqueue(t.Context(), []processlog.QueueEntry{{BusinessType: "close_order", ID: id}}, processlog.EnqueueRules{MaxLease: time.Minute})
		require.NoError(t, err)
	}
	w.Eventually(func() bool {
		waits, _, err := queue.Peek(t.Context(), []string{"close_order"})
		return err == nil && waits[0] > 0
	}, "the queue has offered all of them")
	g.Open()
	w.WaitAllEnded()
	require.Zero(t, ran.Total())
	require.Empty(t, g.Entered, "each ran once")
}

// Failure: F56
func TestEntryTheQueueKeepsAfterItsEndDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c := w.New(w.QuickConfig())
	orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	w.WaitState(id, compensator.Succeeded)
	queue, err := redisqueue.Open(w.Redis, w.Name)
	require.NoError(t, err)
	t.Cleanup(func() { _ = queue.Close() })
	for _, row := range []compensator.EntryID{id, processlog.RowID(1 << 40)} { // The first id was read by a reconciler just before the entry ended. The second id never existed.
		_, _, err = queue.Enqueue(t.Context(), []processlog.QueueEntry{{BusinessType: "close_order", ID: row}}, processlog.EnqueueRules{MaxLease: time.Minute})
		require.NoError(t, err)
	}
	require.NoError(t, queue.Notify(t.Context(), []string{"close_order"}))
	w.Eventually(func() bool { return w.Queued() == 0 }, "the queue learns that the entry has ended")
	require.Equal(t, 1, ran.Of(id))
}

// When the lease ends, the handler must be cancelled with ErrLeaseLost, even if the row is still locked.
// Failure: F27
func TestHandlerIsToldWhenTheLeaseOfALockedRowEnds(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg.Lease = time.Second
		c := w.New(cfg)
		started, told := make(chan struct{}, 10), make(chan error, 10)
		ran := new(harness.Calls)
		orders, err := compensator.Handle(t.Context(), c, "close_order", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
			if started <- struct{}{}; ran.Add(e.ID) > 1 {
				return nil
			}
			<-ctx.Done()
			told <- context.Cause(ctx)
			return ctx.Err()
		}, nil)
		require.NoError(t, err)
		w.Run(c)
		id := w.RecordThrough(cfg.DB, orders, 1, compensator.Options{})
		harness.Receive(t, started)
		release := w.LockRow(id)
		require.ErrorIs(t, harness.Receive(t, told), compensator.ErrLeaseLost)
		release()
		w.WaitState(id, compensator.Succeeded)
	})
}

// On a small plain pool, a renewal may find no free connection.
// Failure: F52
func TestLeaseOutlastsTheTimeoutOnASmallPlainPoolAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pool   string
		conns  int
		raised bool
	}{{"plain", 1, true}, {"plain", 2, true}, {"plain", 3, true}, {"plain", 4, false}, {"plain", 0, false}, {"connector", 1, false}} {
		t.Run(fmt.Sprintf("%s, %d", c.pool, c.conns), func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			cfg := w.QuickConfig()
			cfg.DB = w.Open(harness.Pools[c.pool](w.DSN))
			cfg.DB.SetMaxOpenConns(c.conns)
			log := w.New(cfg)
			orders, g := harness.HandleGated(t, log, "close_order", compensator.HandlerConfig[harness.Order]{Timeout: time.Hour, Lease: time.Minute}, nil)
			w.Run(log)
			id := w.RecordThrough(cfg.DB, orders, 1, compensator.Options{})
			g.Await(t)
			raised := w.Count("common_process_log WHERE id=? AND lease_until>30*60*1000+"+harness.NowMillis, id.Row())
			assert.Equal(t, c.raised, raised == 1)
			g.Open()
			w.WaitState(id, compensator.Succeeded)
		})
	}
}
