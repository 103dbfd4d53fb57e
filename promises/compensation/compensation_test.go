package compensation

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

func undoing(undo compensator.HandlerFunc) compensator.HandlerConfig[harness.Order] {
	return compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, MaxCompensateAttempts: 3, Retry: compensator.Fixed(0), Compensate: func(ctx context.Context, e *compensator.Entry, _ harness.Order) error { return undo(ctx, e) }}
}

// Failure: F70
func TestExhaustionIsDurableBeforeTheCompensationRuns(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		orders, ran := harness.HandleCounted(t, c, "close_order", undoing(func(ctx context.Context, e *compensator.Entry) error {
			stored, err := c.Get(ctx, e.ID)
			if assert.NoError(t, err) {
				assert.Equal(t, compensator.Compensating, stored.State)
				assert.Equal(t, 1, stored.ProcessCount)
				assert.Equal(t, harness.ErrSoldOut.Error(), stored.LastError)
			}
			assert.Equal(t, harness.ErrSoldOut.Error(), e.LastError, "it gets the cause")
			assert.Equal(t, 1, e.Attempt())
			return nil
		}), harness.FailAlways)
		w.Run(c)
		id := w.RecordThrough(cfg.DB, orders, 1, compensator.Options{})
		w.WaitState(id, compensator.Compensated)
		e := w.Entry(c, id)
		require.Equal(t, 1, ran.Of(id))
		require.Equal(t, compensator.EndedByHandler, e.EndedBy)
		require.Zero(t, e.CompensateCount)
	})
}

func TestPermanentFailureIsCompensatedAtOnce(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c := w.New(w.QuickConfig())
	var undone harness.Calls
	cfg := undoing(func(_ context.Context, e *compensator.Entry) error { undone.Add(e.ID); return nil })
	cfg.MaxAttempts = 10
	orders, ran := harness.HandleCounted(t, c, "close_order", cfg, func(*compensator.Entry, int) error { return compensator.Permanent(harness.ErrSoldOut) })
	w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	w.WaitState(id, compensator.Compensated)
	require.Equal(t, 1, ran.Of(id))
	require.Equal(t, 1, undone.Of(id))
}

// Failure: F70
func TestCompensationHasABudgetOfItsOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		verdicts []error
		state    compensator.State
		endedBy  compensator.EndedBy
		counted  int
	}{
		"succeeds late":  {[]error{errors.New("busy"), errors.New("busy"), nil}, compensator.Compensated, compensator.EndedByHandler, 2},
		"exhausted":      {[]error{errors.New("a"), errors.New("b"), errors.New("c")}, compensator.Dead, compensator.EndedByExhausted, 3},
		"permanent":      {[]error{errors.New("a"), compensator.Permanent(errors.New("b"))}, compensator.Dead, compensator.EndedByPermanent, 2},
		"spends nothing": {[]error{compensator.Snooze(0), compensator.Unavailable(errors.New("down")), compensator.Snooze(0), nil}, compensator.Compensated, compensator.EndedByHandler, 0},
		"retry after":    {[]error{compensator.RetryAfter(0, errors.New("soon")), nil}, compensator.Compensated, compensator.EndedByHandler, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t).WithRedis()
			comp := w.New(w.QuickConfig())
			var undone harness.Calls
			orders, ran := harness.HandleCounted(t, comp, "close_order", undoing(func(_ context.Context, e *compensator.Entry) error {
				return c.verdicts[undone.Add(e.ID)-1]
			}), harness.FailAlways)
			w.Run(comp)
			id := w.Record(orders, 1, compensator.Options{})
			w.WaitState(id, c.state)
			e := w.Entry(comp, id)
			require.Equal(t, c.endedBy, e.EndedBy)
			require.Equal(t, c.counted, e.CompensateCount)
			require.Equal(t, 1, e.ProcessCount, "the handler's failures are counted apart")
			require.Equal(t, len(c.verdicts), undone.Of(id))
			require.Equal(t, 1, ran.Of(id))
		})
	}
}

// Failure: F70
func TestTransactionalCompensationHappensExactlyOnce(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		var undone harness.Calls
		orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, Retry: compensator.Fixed(0),
			CompensateTx: func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ harness.Order) error {
				if _, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", e.ID.String()); err != nil {
					return err
				}
				if undone.Add(e.ID) < 3 {
					return errors.New("after the effect")
				}
				return nil
			}}, harness.FailAlways)
		w.Run(c)
		for i := range 10 {
			w.RecordThrough(cfg.DB, orders, i, compensator.Options{})
		}
		w.WaitAllEnded()
		require.Equal(t, 10, w.Count("common_process_log WHERE state=2 AND compensate_count=2"))
		require.Equal(t, 10, w.Count("effects"))
		require.Equal(t, 10, w.Count("(SELECT DISTINCT what FROM effects) distinct_effects"))
	})
}

// Failure: F70
func TestSuccessIsNeverCompensated(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c := w.New(w.QuickConfig())
	var undone harness.Calls
	cfg := undoing(func(_ context.Context, e *compensator.Entry) error { undone.Add(e.ID); return nil })
	cfg.MaxAttempts = 3
	orders, _ := harness.HandleCounted(t, c, "close_order", cfg, func(_ *compensator.Entry, call int) error {
		if call < 3 {
			return harness.ErrSoldOut
		}
		return nil // The last attempt succeeds. One more failure would start the compensation.
	})
	w.Run(c)
	for i := range 20 {
		w.Record(orders, i, compensator.Options{})
	}
	w.WaitAllEnded()
	require.Equal(t, 20, w.CountEnded(compensator.Succeeded, 2))
	require.Zero(t, undone.Total())
}

// Failure: F65
func TestCompensatingEntryWaitsForAnInstanceThatCanUndoIt(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		old := w.New(cfg) // old runs an earlier version of the code, in which the type had no compensation.
		_, ran := harness.HandleCounted(t, old, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		id := w.InsertDue("close_order", 1, 1)[0]
		w.Exec("UPDATE common_process_log SET state=-3, process_count=1 WHERE id=?", id.Row())
		w.Run(old)
		for i := range 10 {
			w.InsertDue("close_order", 10+i, 1)
			w.WaitState(processlog.RowID(uint64(10+i)), compensator.Succeeded)
		}
		require.Equal(t, 10, ran.Total())
		e := w.Entry(old, id)
		require.Equal(t, compensator.Compensating, e.State)
		require.Zero(t, e.Version, "a process that cannot undo it does not take it")
		var undone harness.Calls
		next := w.New(cfg)
		_, _ = harness.HandleCounted(t, next, "close_order", undoing(func(_ context.Context, e *compensator.Entry) error { undone.Add(e.ID); return nil }), nil)
		w.Run(next)
		w.WaitState(id, compensator.Compensated)
		require.Equal(t, 1, undone.Of(id))
	})
}

// Failure: F61
func TestCrashedEntryIsCompensatedOnlyWhereItsTypeAsksForIt(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	var undone harness.Calls
	cfg := undoing(func(_ context.Context, e *compensator.Entry) error {
		assert.Contains(t, e.LastError, "leases in a row ended with no outcome")
		undone.Add(e.ID)
		return nil
	})
	_, ran := harness.HandleCounted(t, c, "cautious", cfg, nil)
	cfg.CompensateCrashed = true
	_, ranToo := harness.HandleCounted(t, c, "eager", cfg, nil)
	cautious, eager := w.InsertDue("cautious", 1, 1)[0], w.InsertDue("eager", 2, 1)[0]
	w.Exec("UPDATE common_process_log SET delivery_count=3")
	w.Run(c)
	w.WaitState(cautious, compensator.Dead)
	w.WaitState(eager, compensator.Compensated)
	require.Equal(t, compensator.EndedByCrash, w.Entry(c, cautious).EndedBy)
	require.Zero(t, ran.Total()+ranToo.Total(), "neither ran again")
	require.Equal(t, 1, undone.Total())
}

// Failure: F61
func TestCompensationOfACrashedCompensationWaitsForAPerson(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	var undone harness.Calls
	cfg := undoing(func(_ context.Context, e *compensator.Entry) error { undone.Add(e.ID); return nil })
	cfg.CompensateCrashed = true
	_, _ = harness.HandleCounted(t, c, "close_order", cfg, nil)
	id := w.InsertDue("close_order", 1, 1)[0]
	w.Exec("UPDATE common_process_log SET state=-3, process_count=1, delivery_count=3")
	w.Run(c)
	w.WaitState(id, compensator.Dead)
	require.Equal(t, compensator.EndedByCrash, w.Entry(c, id).EndedBy)
	require.Zero(t, undone.Total())
}

func TestPersonMayHaveACompensationRunAgain(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c := w.New(w.QuickConfig())
	var undone harness.Calls
	cfg := undoing(func(_ context.Context, e *compensator.Entry) error {
		if undone.Add(e.ID) <= 3 {
			return errors.New("the bank is closed")
		}
		return nil
	})
	orders, ran := harness.HandleCounted(t, c, "close_order", cfg, harness.FailAlways)
	w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	w.WaitState(id, compensator.Dead)
	key := w.Entry(c, id).CallKey()
	by := admin.AuditInfo{Actor: "mei", Reason: "the bank is open again"}
	require.NoError(t, admin.Of(c).Requeue(t.Context(), id, admin.RequeueOptions{AuditInfo: by, Compensate: true, Delay: time.Millisecond}))
	w.WaitState(id, compensator.Compensated)
	require.Equal(t, 1, ran.Of(id), "the handler itself did not run again")
	require.Equal(t, 4, undone.Of(id))
	require.NotEqual(t, key, w.Entry(c, id).CallKey(), "a new generation, for whatever it calls")
}

func TestStaleFailureOfACompensationIsDropped(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	cfg.Lease = 30 * time.Second // The lease is long enough that it is not renewed during the test.
	second := w.New(cfg)
	dropped := make(chan observe.SettledEvent, 10)
	cfg.Observer.OutcomeDropped = func(e observe.SettledEvent) { dropped <- e }
	first := w.New(cfg)
	g := harness.NewGate()
	g.OpenAtEnd(t)
	typ := compensator.HandlerConfig[harness.Order]{MaxCompensateAttempts: 5, Retry: compensator.Fixed(time.Hour), Concurrency: 1}
	typ.Compensate = func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
		_ = g.PassIgnoringContext(e)
		return compensator.Permanent(errors.New("stale"))
	}
	harness.HandleCounted(t, first, "close_order", typ, nil)
	typ.Compensate = func(context.Context, *compensator.Entry, harness.Order) error { return errors.New("fresh") }
	harness.HandleCounted(t, second, "close_order", typ, nil)
	id := w.InsertDue("close_order", 1, 1)[0]
	w.Exec("UPDATE common_process_log SET state=-3, process_count=1 WHERE id=?", id.Row())
	w.Run(first)
	g.Await(t)
	w.Run(second)
	w.EndLease(id)
	w.Eventually(func() bool { return w.Entry(second, id).CompensateCount == 1 }, "the second instance fails to undo it")
	stored := w.Row(id)
	g.Open()
	require.Equal(t, compensator.Compensating, harness.Receive(t, dropped).State)
	require.Equal(t, stored, w.Row(id))
}
