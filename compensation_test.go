package compensator_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

var errSoldOut = errors.New("sold out")

// undoing is a type that fails for good at once and is undone by undo.
func undoing(undo compensator.HandlerFunc) compensator.TypeConfig {
	return compensator.TypeConfig{MaxProcessCount: 1, MaxCompensateCount: 3, Retry: compensator.Fixed(0), Compensate: undo}
}

func failing(*compensator.Entry, int) error { return errSoldOut }

func TestExhaustionIsDurableBeforeTheCompensationRuns(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		c := w.new(cfg)
		orders, ran := numbered(t, c, "close_order", undoing(func(ctx context.Context, e *compensator.Entry) error {
			stored, err := c.Get(ctx, e.ID)
			if assert.NoError(t, err) {
				assert.Equal(t, compensator.Compensating, stored.State)
				assert.Equal(t, 1, stored.ProcessCount)
				assert.Equal(t, errSoldOut.Error(), stored.LastError)
			}
			assert.Equal(t, errSoldOut.Error(), e.LastError, "it is told why")
			assert.Equal(t, 1, e.Attempt())
			return nil
		}), failing)
		w.run(c)
		id := putThrough(w, cfg.DB, orders, 1, compensator.Options{})
		w.waitState(id, compensator.Compensated)
		e := w.entry(c, id)
		require.Equal(t, 1, ran.of(id))
		require.Equal(t, compensator.EndedByHandler, e.EndedBy)
		require.Zero(t, e.CompensateCount)
	})
}

func TestPermanentFailureIsCompensatedAtOnce(t *testing.T) {
	w := newWorld(t).withRedis()
	c := w.new(w.quick())
	var undone calls
	cfg := undoing(func(_ context.Context, e *compensator.Entry) error { undone.add(e.ID); return nil })
	cfg.MaxProcessCount = 10
	orders, ran := numbered(t, c, "close_order", cfg, func(*compensator.Entry, int) error { return compensator.Permanent(errSoldOut) })
	w.run(c)
	id := put(w, orders, 1, compensator.Options{})
	w.waitState(id, compensator.Compensated)
	require.Equal(t, 1, ran.of(id))
	require.Equal(t, 1, undone.of(id))
}

func TestCompensationHasABudgetOfItsOwn(t *testing.T) {
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
			w := newWorld(t).withRedis()
			comp := w.new(w.quick())
			var undone calls
			orders, ran := numbered(t, comp, "close_order", undoing(func(_ context.Context, e *compensator.Entry) error {
				return c.verdicts[undone.add(e.ID)-1]
			}), failing)
			w.run(comp)
			id := put(w, orders, 1, compensator.Options{})
			w.waitState(id, c.state)
			e := w.entry(comp, id)
			require.Equal(t, c.endedBy, e.EndedBy)
			require.Equal(t, c.counted, e.CompensateCount)
			require.Equal(t, 1, e.ProcessCount, "the handler's failures are counted apart")
			require.Equal(t, len(c.verdicts), undone.of(id))
			require.Equal(t, 1, ran.of(id))
		})
	}
}

func TestTransactionalCompensationHappensExactlyOnce(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		c := w.new(cfg)
		var undone calls
		orders, _ := numbered(t, c, "close_order", compensator.TypeConfig{MaxProcessCount: 1, Retry: compensator.Fixed(0),
			CompensateTx: compensator.TypedTx(func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ order) error {
				if _, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", e.ID.String()); err != nil {
					return err
				}
				if undone.add(e.ID) < 3 {
					return errors.New("after the effect")
				}
				return nil
			})}, failing)
		w.run(c)
		for i := range 10 {
			putThrough(w, cfg.DB, orders, i, compensator.Options{})
		}
		w.waitAllEnded()
		require.Equal(t, 10, w.count("common_process_log WHERE state=2 AND compensate_count=2"))
		require.Equal(t, 10, w.count("effects"))
		require.Equal(t, 10, w.count("(SELECT DISTINCT what FROM effects) distinct_effects"))
	})
}

func TestSuccessIsNeverCompensated(t *testing.T) {
	w := newWorld(t).withRedis()
	c := w.new(w.quick())
	var undone calls
	cfg := undoing(func(_ context.Context, e *compensator.Entry) error { undone.add(e.ID); return nil })
	cfg.MaxProcessCount = 3
	orders, _ := numbered(t, c, "close_order", cfg, func(_ *compensator.Entry, call int) error {
		if call < 3 {
			return errSoldOut
		}
		return nil // with the last attempt there is
	})
	w.run(c)
	for i := range 20 {
		put(w, orders, i, compensator.Options{})
	}
	w.waitAllEnded()
	require.Equal(t, 20, w.ended(compensator.Succeeded, 2))
	require.Zero(t, undone.total())
}

func TestCompensatingEntryWaitsForAnInstanceThatCanUndoIt(t *testing.T) {
	inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
		old := w.new(cfg) // a version of the code from before the type had a compensation
		_, ran := numbered(t, old, "close_order", compensator.TypeConfig{}, nil)
		id := w.insertDue("close_order", 1, 1)[0]
		w.exec("UPDATE common_process_log SET state=-3, process_count=1 WHERE id=?", id.Row())
		w.run(old)
		for i := range 10 {
			w.insertDue("close_order", 10+i, 1)
			w.waitState(processlog.RowID(uint64(10+i)), compensator.Succeeded)
		}
		require.Equal(t, 10, ran.total())
		e := w.entry(old, id)
		require.Equal(t, compensator.Compensating, e.State)
		require.Zero(t, e.Version, "a process that cannot undo it does not take it")
		var undone calls
		next := w.new(cfg)
		_, _ = numbered(t, next, "close_order", undoing(func(_ context.Context, e *compensator.Entry) error { undone.add(e.ID); return nil }), nil)
		w.run(next)
		w.waitState(id, compensator.Compensated)
		require.Equal(t, 1, undone.of(id))
	})
}

func TestCrashedEntryIsCompensatedOnlyWhereItsTypeAsksForIt(t *testing.T) {
	w := newWorld(t)
	c := w.new(w.quick())
	var undone calls
	cfg := undoing(func(_ context.Context, e *compensator.Entry) error {
		assert.Contains(t, e.LastError, "leases in a row ended with no outcome")
		undone.add(e.ID)
		return nil
	})
	_, ran := numbered(t, c, "cautious", cfg, nil)
	cfg.CompensateCrashed = true
	_, ranToo := numbered(t, c, "eager", cfg, nil)
	cautious, eager := w.insertDue("cautious", 1, 1)[0], w.insertDue("eager", 2, 1)[0]
	w.exec("UPDATE common_process_log SET delivery_count=3")
	w.run(c)
	w.waitState(cautious, compensator.Dead)
	w.waitState(eager, compensator.Compensated)
	require.Equal(t, compensator.EndedByCrash, w.entry(c, cautious).EndedBy)
	require.Zero(t, ran.total()+ranToo.total(), "neither ran again")
	require.Equal(t, 1, undone.total())
}

func TestCompensationOfACrashedCompensationWaitsForAPerson(t *testing.T) {
	w := newWorld(t)
	c := w.new(w.quick())
	var undone calls
	cfg := undoing(func(_ context.Context, e *compensator.Entry) error { undone.add(e.ID); return nil })
	cfg.CompensateCrashed = true
	_, _ = numbered(t, c, "close_order", cfg, nil)
	id := w.insertDue("close_order", 1, 1)[0]
	w.exec("UPDATE common_process_log SET state=-3, process_count=1, delivery_count=3")
	w.run(c)
	w.waitState(id, compensator.Dead)
	require.Equal(t, compensator.EndedByCrash, w.entry(c, id).EndedBy)
	require.Zero(t, undone.total())
}

func TestPersonMayHaveACompensationRunAgain(t *testing.T) {
	w := newWorld(t).withRedis()
	c := w.new(w.quick())
	var undone calls
	cfg := undoing(func(_ context.Context, e *compensator.Entry) error {
		if undone.add(e.ID) <= 3 {
			return errors.New("the bank is closed")
		}
		return nil
	})
	orders, ran := numbered(t, c, "close_order", cfg, failing)
	w.run(c)
	id := put(w, orders, 1, compensator.Options{})
	w.waitState(id, compensator.Dead)
	key := w.entry(c, id).Key()
	by := compensator.ByHand{Actor: "mei", Reason: "the bank is open again"}
	require.NoError(t, c.Requeue(t.Context(), id, compensator.RequeueOptions{ByHand: by, Compensate: true, Delay: time.Millisecond}))
	w.waitState(id, compensator.Compensated)
	require.Equal(t, 1, ran.of(id), "the handler itself did not run again")
	require.Equal(t, 4, undone.of(id))
	require.NotEqual(t, key, w.entry(c, id).Key(), "a new generation, for whatever it calls")
}
