package leases

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

// A suspect entry is one that has lost leases. Until its outcome is stored, its process could still crash.
// Failure: F61
func TestSuspectHoldsItsQuarantineUntilItsOutcomeIsStored(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	proxy, _ := w.OpenProxied(true)
	c, types := w.LifeInstance(w.DB)
	w.RecordMany(c, types.Ship, 10, compensator.Options{})
	w.Exec("UPDATE common_process_log SET delivery_count=2")
	harness.WithholdOutcomes(proxy)
	child := w.StartChild(harness.Program{DSN: harness.ThroughProxy(t, w.DSN, proxy)})
	w.Eventually(func() bool { return w.Count("common_process_log WHERE delivery_count=3") > 0 }, "a suspect runs")
	w.AwaitMoreClaims(proxy)
	child.Kill()
	require.Equal(t, 1, w.Count("common_process_log WHERE delivery_count>2"), "the kill counts against one")
	w.Run(c)
	w.WaitAllEnded()
	require.LessOrEqual(t, w.Count("common_process_log WHERE state=-2"), 1)
	require.GreaterOrEqual(t, w.CountEnded(compensator.Succeeded, 0), 9)
}

// stuckOn returns when the handler of its one entry counts as stuck.
func stuckOn(t *testing.T, w *harness.World, cfg compensator.Config) (c *compensator.Compensator, id compensator.EntryID, ran *harness.Calls, g *harness.Gate) {
	t.Helper()
	cfg.StopTimeout = 300 * time.Millisecond
	c = w.New(cfg)
	g, ran = harness.NewGate(), new(harness.Calls)
	g.OpenAtEnd(t)
	orders, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
		if ran.Add(e.ID); e.Epoch > 0 {
			return nil
		}
		return g.PassIgnoringContext(e)
	}, &compensator.HandlerConfig[harness.Order]{Timeout: 50 * time.Millisecond})
	require.NoError(t, err)
	w.Run(c)
	id = w.RecordThrough(cfg.DB, orders, 1, compensator.Options{})
	g.Await(t)
	return c, id, ran, g
}

// Failure: F62
func TestEntryWhoseHandlerNeverReturnsIsNotRunBesideIt(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg.Lease = time.Second
		c, id, ran, _ := stuckOn(t, w, cfg)
		w.WaitState(id, compensator.Dead) // No other process exists that could run the entry.
		require.Equal(t, 1, ran.Of(id), "no second goroutine is stuck")
		e := w.Entry(c, id)
		require.Equal(t, compensator.EndedByCrash, e.EndedBy)
		require.Contains(t, e.LastError, "has not returned since")
		require.Zero(t, e.ProcessCount)
		if stuck := c.Health(t.Context()).Stuck; assert.Len(t, stuck, 1) {
			require.Equal(t, id, stuck[0].ID)
		}
		by := admin.AuditInfo{Actor: "ops", Reason: "the downstream is back"}
		require.NoError(t, admin.Of(c).Requeue(t.Context(), id, admin.RequeueOptions{AuditInfo: by}))
		w.WaitState(id, compensator.Succeeded)
		require.Equal(t, 2, ran.Of(id), "a manual requeue is enough to run it beside the stuck attempt")
	})
}

// A claim needs a free slot, and a stuck handler holds the only one.
// Failure: F62
func TestEntryIsDeadLetteredAlsoWhereItsStuckHandlerHasTheOnlySlot(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg.Lease = time.Second
		c := w.New(cfg)
		g := harness.NewGate()
		g.OpenAtEnd(t)
		_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Timeout: 50 * time.Millisecond, Concurrency: 1}, func(e *compensator.Entry, _ int) error {
			return g.PassIgnoringContext(e)
		})
		w.Backlog("close_order", 1)
		w.Run(c)
		id := g.Await(t)
		w.WaitState(id, compensator.Dead)
		require.Equal(t, 1, ran.Of(id))
		require.Contains(t, w.Entry(c, id).LastError, "has not returned since")
		g.Open() // Open the gate, because Run waits for this handler.
	})
}

// Failure: F62
func TestStuckHandlersSuccessCountsAlthoughItsLeasesAreLost(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg.Lease = time.Second
		_, id, ran, g := stuckOn(t, w, cfg)
		w.Eventually(func() bool { return w.Count("common_process_log WHERE delivery_count=2") == 1 }, "a lease is lost")
		g.Open()
		w.WaitState(id, compensator.Succeeded)
		require.Equal(t, 1, ran.Of(id))
	})
}

// Failure: F62
func TestStuckCompensationsSuccessCountsAlthoughItsLeasesAreLost(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg.Lease = time.Second
		cfg.Observer.OutcomeDropped = func(e observe.SettledEvent) { assert.Fail(t, "dropped", e) }
		c := w.New(cfg)
		g, undone := harness.NewGate(), new(harness.Calls)
		g.OpenAtEnd(t)
		harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Timeout: 50 * time.Millisecond, Compensate: func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
			undone.Add(e.ID)
			return g.PassIgnoringContext(e)
		}}, nil)
		w.Backlog("close_order", 1)
		w.Exec("UPDATE common_process_log SET state=-3")
		w.Run(c)
		g.Await(t)
		w.Eventually(func() bool { return w.Count("common_process_log WHERE delivery_count=2") == 1 }, "a lease is lost")
		g.Open()
		w.WaitAllEnded()
		require.Equal(t, 1, w.CountEnded(compensator.Compensated, 0))
		require.Equal(t, 1, undone.Total())
	})
}

// Failure: F62
func TestEntryAProcessIsStuckOnRunsElsewhere(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		other := w.New(cfg)
		_, ranElsewhere := harness.HandleCounted(t, other, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		cfg.Lease = time.Second
		_, id, ran, _ := stuckOn(t, w, cfg)
		w.Run(other)
		w.WaitState(id, compensator.Succeeded)
		require.Equal(t, 1, ran.Of(id))
		require.Equal(t, 1, ranElsewhere.Of(id))
	})
}

func TestDeadLetteringThatWaitsGivesWayToTheStuckHandlersSuccess(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	proxy, db := w.OpenProxied(true)
	cfg := w.QuickConfig()
	cfg.DB, cfg.Lease = db, time.Second
	cfg.Observer.OutcomeDropped = func(e observe.SettledEvent) { assert.Fail(t, "dropped", e) }
	c := w.New(cfg)
	g := harness.NewGate()
	g.OpenAtEnd(t)
	_, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
		return g.PassIgnoringContext(e)
	}, &compensator.HandlerConfig[harness.Order]{Timeout: 100 * time.Millisecond})
	require.NoError(t, err)
	w.Backlog("close_order", 1)
	deadLetter := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("ended_by='crash'"), Fault: faultproxy.DropRequest})
	success := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("ended_by='handler'"), Fault: faultproxy.DropRequest})
	w.Run(c)
	id := g.Await(t)
	w.Eventually(func() bool { return deadLetter.Fired() > 0 }, "the take-out waits")
	g.Open()
	w.Eventually(func() bool { return success.Fired() > 0 }, "the success waits")
	tries := deadLetter.Matched()
	deadLetter.Disarm()
	w.Eventually(func() bool { return deadLetter.Matched() > tries+2 || success.Fired() > 3 }, "both are tried again")
	success.Disarm()
	w.WaitState(id, compensator.Succeeded)
}

// Failure: F71
func TestBatchThatBreaksAfterItsLeasesIsNotRunAgainHere(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg.Lease = time.Second
		var dropped, alone atomic.Int64
		cfg.Observer.OutcomeDropped = func(observe.SettledEvent) { dropped.Add(1) }
		c := w.New(cfg)
		cfg.Observer = observe.Observer{}
		g := harness.NewGate()
		g.OpenAtEnd(t)
		_, err := compensator.HandleBatch(t.Context(), c, "close_order", func(ctx context.Context, items []compensator.Item[harness.Order]) []error {
			if len(items) == 1 {
				alone.Add(1)
				return nil
			}
			_ = g.PassIgnoringContext(items[0].Entry)
			return []error{nil, ctx.Err()}
		}, &compensator.BatchConfig[harness.Order]{Timeout: 100 * time.Millisecond})
		require.NoError(t, err)
		w.Backlog("close_order", 2)
		w.Run(c)
		g.Await(t)
		other := w.New(cfg)
		_, ranElsewhere := harness.HandleCounted(t, other, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(other)
		w.WaitAllEnded()
		require.Equal(t, 2, ranElsewhere.Total())
		g.Open()
		w.Eventually(func() bool { return dropped.Load() == 2 }, "what the batch said is dropped")
		require.Zero(t, alone.Load(), "what others have done is not done again")
	})
}

// Failure: F71
func TestEntryOfABrokenBatchThatWasStuckStartsAfresh(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.Lease = 30 * time.Second
	reported := make(chan struct{}, 10)
	cfg.Observer.Stuck = func(observe.AttemptEvent) { reported <- struct{}{} }
	c := w.New(cfg)
	g := harness.NewGate()
	g.OpenAtEnd(t)
	_, err := compensator.HandleBatch(t.Context(), c, "close_order", func(ctx context.Context, items []compensator.Item[harness.Order]) []error {
		if len(items) == 1 {
			return []error{g.PassIgnoringContext(items[0].Entry)}
		}
		harness.Receive(t, reported)
		harness.Receive(t, reported)
		return []error{nil, ctx.Err()}
	}, &compensator.BatchConfig[harness.Order]{Timeout: time.Second})
	require.NoError(t, err)
	w.Backlog("close_order", 2)
	w.Run(c)
	g.Await(t)
	g.Await(t)
	assert.Empty(t, c.Health(t.Context()).Stuck, "they have just begun")
	harness.Receive(t, reported)
	harness.Receive(t, reported)
	assert.Len(t, c.Health(t.Context()).Stuck, 2)
	g.Open()
	w.WaitAllEnded()
}

// Another process has run the entry, which then waits for its retry without a lease.
// Failure: F62
func TestStuckProcessLeavesARetryToOthers(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	proxy, db := w.OpenProxied(true)
	cfg := w.QuickConfig()
	cfg.DB, cfg.Lease = db, 30*time.Second
	reported := make(chan struct{}, 1)
	cfg.Observer.Stuck = func(observe.AttemptEvent) { reported <- struct{}{} }
	_, id, ran, _ := stuckOn(t, w, cfg)
	harness.Receive(t, reported)
	cfg.DB, cfg.Observer = w.DB, observe.Observer{}
	other := w.New(cfg)
	_, _ = harness.HandleCounted(t, other, "close_order", compensator.HandlerConfig[harness.Order]{}, func(_ *compensator.Entry, call int) error {
		if call == 1 {
			return compensator.RetryAfter(time.Second, harness.ErrSoldOut)
		}
		return nil
	})
	w.Exec("UPDATE common_process_log SET lease_until=" + harness.NowMillis)
	stop := w.Run(other)
	w.WaitState(id, compensator.Retrying)
	require.NoError(t, stop())
	w.Eventually(func() bool { return w.Count("common_process_log WHERE next_at<"+harness.NowMillis) == 1 }, "it is due again")
	w.AwaitMoreClaims(proxy)
	require.Zero(t, w.Count("common_process_log WHERE delivery_count>0"), "it is left to others for a lease")
	w.Run(other)
	w.WaitState(id, compensator.Succeeded)
	require.Equal(t, 1, ran.Of(id))
}
