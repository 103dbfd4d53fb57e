package people

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

// undone is the number of failed attempts of the compensation.
func deadBy(w *harness.World, orders *compensator.Type[harness.Order], by compensator.EndedBy, undone int) compensator.EntryID {
	w.T.Helper()
	id := w.Record(orders, 1, compensator.Options{Delay: time.Hour})
	w.Exec("UPDATE common_process_log SET state=-2, process_count=1, compensate_count=?, ended_by=?, version=7 WHERE id=?", undone, string(by), id.Row())
	return id
}

var endings = map[string]struct {
	to  compensator.State
	by  compensator.EndedBy
	end func(ctx context.Context, c *compensator.Compensator, of *compensator.Type[harness.Order], tx *sql.Tx, id compensator.EntryID) (wasDead bool, err error)
}{
	"Cancel": {compensator.Cancelled, compensator.EndedByCancel, func(ctx context.Context, c *compensator.Compensator, _ *compensator.Type[harness.Order], _ *sql.Tx, id compensator.EntryID) (bool, error) {
		return cancelled(c.Cancel(ctx, id))
	}},
	"CancelTx": {compensator.Cancelled, compensator.EndedByCancel, func(ctx context.Context, c *compensator.Compensator, _ *compensator.Type[harness.Order], tx *sql.Tx, id compensator.EntryID) (bool, error) {
		return cancelled(c.CancelTx(ctx, tx, id))
	}},
	"Type.CancelTx": {compensator.Cancelled, compensator.EndedByCancel, func(ctx context.Context, _ *compensator.Compensator, of *compensator.Type[harness.Order], tx *sql.Tx, id compensator.EntryID) (bool, error) {
		return cancelled(of.CancelTx(ctx, tx, id))
	}},
	"Complete": {compensator.Succeeded, compensator.EndedByComplete, func(ctx context.Context, c *compensator.Compensator, _ *compensator.Type[harness.Order], _ *sql.Tx, id compensator.EntryID) (bool, error) {
		return completed(c.Complete(ctx, id))
	}},
	"CompleteTx": {compensator.Succeeded, compensator.EndedByComplete, func(ctx context.Context, c *compensator.Compensator, _ *compensator.Type[harness.Order], tx *sql.Tx, id compensator.EntryID) (bool, error) {
		return completed(c.CompleteTx(ctx, tx, id))
	}},
	"Type.CompleteTx": {compensator.Succeeded, compensator.EndedByComplete, func(ctx context.Context, _ *compensator.Compensator, of *compensator.Type[harness.Order], tx *sql.Tx, id compensator.EntryID) (bool, error) {
		return completed(of.CompleteTx(ctx, tx, id))
	}},
}

func cancelled(found compensator.CancelResult, err error) (wasDead bool, _ error) {
	return found.WasDead, err
}

func completed(found compensator.CompleteResult, err error) (wasDead bool, _ error) {
	return found.WasDead, err
}

// Failure: F73
func TestDeadEntryIsEndedByAServiceUnlessItsCompensationHasBegun(t *testing.T) {
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
		require.NoError(t, err)
		for name, e := range endings {
			for _, by := range []compensator.EndedBy{compensator.EndedByPermanent, compensator.EndedByExhausted, compensator.EndedByCrash} {
				free, begun := deadBy(w, orders, by, 0), deadBy(w, orders, by, 1)
				stored := w.Row(begun)
				what := fmt.Sprintf("%s, %s", name, by)
				act := func(tx *sql.Tx, id compensator.EntryID) (bool, error) {
					if name == "Cancel" || name == "Complete" {
						tx = nil
					}
					return e.end(t.Context(), c, orders, tx, id)
				}
				w.InTx(db, func(tx *sql.Tx) {
					_, err := act(tx, begun)
					var refused *compensator.StateError
					require.ErrorAs(t, err, &refused, what)
					require.Equal(t, compensator.Dead, refused.State)
					require.True(t, refused.CompensationBegun)
					require.ErrorContains(t, err, "its compensation has begun")
					wasDead, err := act(tx, free)
					require.NoError(t, err, what)
					require.True(t, wasDead, what)
				})
				require.Equal(t, stored, w.Row(begun), what)
				after := w.Entry(c, free)
				require.Equal(t, []any{e.to, e.by, uint64(8), uint32(0), 1}, []any{after.State, after.EndedBy, after.Version, after.Epoch, after.ProcessCount}, what)
				require.Empty(t, got[[]admin.AuditRecord](t)(admin.Of(c).History(t.Context(), free)), "no person did it")
			}
		}
	})
}

func got[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

// Only the lost lease of the entry shows that its compensation began.
// Failure: F73
func TestCompensationThatCrashedHasBegun(t *testing.T) {
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	cfg := compensator.HandlerConfig[harness.Order]{Compensate: func(context.Context, *compensator.Entry, harness.Order) error { return nil }}
	_, _ = harness.HandleCounted(t, c, "close_order", cfg, nil)
	ids := append(w.InsertDue("close_order", 1, 1), w.InsertDue("close_order", 2, 1)...)
	w.Exec("UPDATE common_process_log SET delivery_count=4")
	w.Exec("UPDATE common_process_log SET state=-3, process_count=1 WHERE id=?", ids[1].Row())
	w.Run(c)
	for _, id := range ids {
		w.WaitState(id, compensator.Dead)
		require.Equal(t, compensator.EndedByCrash, w.Entry(c, id).EndedBy)
	}
	_, err := c.Cancel(t.Context(), ids[1])
	var refused *compensator.StateError
	require.ErrorAs(t, err, &refused)
	require.True(t, refused.CompensationBegun)
	require.Equal(t, 1, w.Entry(c, ids[1]).CompensateCount)
	found, err := c.Cancel(t.Context(), ids[0])
	require.NoError(t, err, "it crashed in its handler")
	require.True(t, found.WasDead)
	require.Zero(t, w.Entry(c, ids[0]).CompensateCount)
}

func TestRequeuedEntryThatDiesAgainIsAServicesAgain(t *testing.T) {
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
	require.NoError(t, err)
	id := deadBy(w, orders, compensator.EndedByExhausted, 2)
	require.NoError(t, admin.Of(c).Requeue(t.Context(), id, admin.RequeueOptions{AuditInfo: harness.ByMei, Delay: time.Hour}))
	w.Exec("UPDATE common_process_log SET state=-2, process_count=1, ended_by='permanent' WHERE id=?", id.Row())
	found, err := c.Cancel(t.Context(), id)
	require.NoError(t, err, "what came before is a person's, who started it afresh")
	require.True(t, found.WasDead)
}

// Failure: F73
func TestCancelledEntryCanBeCancelledAgain(t *testing.T) {
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
		require.NoError(t, err)
		id := inState(w, orders, compensator.Pending)
		w.InTx(db, func(tx *sql.Tx) {
			require.Equal(t, compensator.CancelResult{}, got[compensator.CancelResult](t)(c.CancelTx(t.Context(), tx, id)))
			require.Equal(t, compensator.CancelResult{WasAlready: true}, got[compensator.CancelResult](t)(c.CancelTx(t.Context(), tx, id)), "within the transaction")
		})
		stored := w.Row(id)
		w.InTx(db, func(tx *sql.Tx) {
			require.Equal(t, compensator.CancelResult{WasAlready: true}, got[compensator.CancelResult](t)(orders.CancelTx(t.Context(), tx, id)))
			w.WriteEffect(tx, "paid")
		})
		require.Equal(t, compensator.CancelResult{WasAlready: true}, got[compensator.CancelResult](t)(c.Cancel(t.Context(), id)))
		require.Equal(t, stored, w.Row(id), "nothing is written")
		require.Equal(t, 1, w.Count("effects WHERE what='paid'"))
		_, err = c.Complete(t.Context(), id)
		require.ErrorAs(t, err, new(*compensator.StateError))
		require.NotErrorIs(t, err, compensator.ErrAlreadySucceeded)
	})
}

// Failure: F24
func TestOneOfManyCancellationsChangesTheEntry(t *testing.T) {
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
	require.NoError(t, err)
	for range 10 {
		id := inState(w, orders, compensator.Retrying)
		found := make(chan compensator.CancelResult, 4)
		for range cap(found) {
			go func() {
				result, err := c.Cancel(t.Context(), id)
				assert.NoError(t, err)
				found <- result
			}()
		}
		first := 0
		for range cap(found) {
			if !harness.Receive(t, found).WasAlready {
				first++
			}
		}
		require.Equal(t, 1, first)
		require.Equal(t, uint64(8), w.Entry(c, id).Version, "one change")
	}
}

// Without an error, a caller that checks only errors would do the work twice.
// Failure: F73
func TestWorkThatHasSucceededIsNotDoneAgain(t *testing.T) {
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
		require.NoError(t, err)
		id := inState(w, orders, compensator.Pending)
		consume := func(id compensator.EntryID) error {
			tx := w.Begin(db)
			defer func() { _ = tx.Rollback() }()
			if _, err := c.CompleteTx(t.Context(), tx, id); err != nil {
				return err
			}
			w.WriteEffect(tx, "stored")
			return tx.Commit()
		}
		require.NoError(t, consume(id))
		for _, id := range []compensator.EntryID{id, inState(w, orders, compensator.Succeeded)} {
			stored := w.Row(id)
			for _, err := range []error{consume(id), harness.ErrOf(c.Complete(t.Context(), id))} {
				require.ErrorIs(t, err, compensator.ErrAlreadySucceeded)
				var refused *compensator.StateError
				require.ErrorAs(t, err, &refused)
				require.Equal(t, compensator.StateError{ID: id, IdempotencyKey: w.Entry(c, id).IdempotencyKey, State: compensator.Succeeded, Action: processlog.ActionComplete}, *refused)
			}
			require.Equal(t, stored, w.Row(id))
			_, err := c.Cancel(t.Context(), id)
			require.ErrorAs(t, err, new(*compensator.StateError))
			require.NotErrorIs(t, err, compensator.ErrAlreadySucceeded, "for the caller that cancels, it is too late and no duplicate")
		}
		require.Equal(t, 1, w.Count("effects"))
	})
}

// Failure: F121
func TestSettlingManuallyInATransactionIsKeptExactlyIfItCommits(t *testing.T) {
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
		require.NoError(t, err)
		id := deadBy(w, orders, compensator.EndedByExhausted, 2)
		stored := w.Row(id)
		tx := w.Begin(db)
		require.NoError(t, admin.Of(c).SettleManuallyTx(t.Context(), tx, id, harness.ByMei))
		require.NoError(t, tx.Rollback())
		require.Equal(t, stored, w.Row(id))
		require.Empty(t, got[[]admin.AuditRecord](t)(admin.Of(c).History(t.Context(), id)))

		w.InTx(db, func(tx *sql.Tx) {
			w.WriteEffect(tx, "refunded")
			for field, by := range map[string]admin.AuditInfo{"actor": {Reason: "because"}, "reason": {Actor: "mei"}} {
				var refused *compensator.FieldError
				require.ErrorAs(t, admin.Of(c).SettleManuallyTx(t.Context(), tx, id, by), &refused)
				require.Equal(t, field, refused.Field)
			}
			require.ErrorIs(t, admin.Of(c).SettleManuallyTx(t.Context(), tx, compensator.IdempotencyKey("nobody's"), harness.ByMei), compensator.ErrNotFound)
			require.NoError(t, admin.Of(c).SettleManuallyTx(t.Context(), tx, id, harness.ByMei))
			require.ErrorAs(t, admin.Of(c).SettleManuallyTx(t.Context(), tx, id, harness.ByMei), new(*compensator.StateError), "it is settled")
		})
		after := w.Entry(c, id)
		require.Equal(t, []any{compensator.SettledManually, compensator.EndedByPerson, uint32(1)}, []any{after.State, after.EndedBy, after.Epoch})
		history := got[[]admin.AuditRecord](t)(admin.Of(c).History(t.Context(), id))
		require.Len(t, history, 1)
		require.Equal(t, []any{processlog.ActionSettleManually, "mei"}, []any{history[0].Action, history[0].Actor})
		require.ErrorIs(t, admin.Of(c).SettleManuallyTx(t.Context(), db, id, harness.ByMei), compensator.ErrNoTransaction)
	})
}

// Failure: F121
func TestSettlingManuallyThatCannotBeKeptChangesNothing(t *testing.T) {
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
	require.NoError(t, err)
	id := deadBy(w, orders, compensator.EndedByExhausted, 2)
	stored := w.Row(id)
	w.Exec("RENAME TABLE common_process_log_audit TO lost")
	w.InTx(w.DB, func(tx *sql.Tx) { require.Error(t, admin.Of(c).SettleManuallyTx(t.Context(), tx, id, harness.ByMei)) })
	require.Equal(t, stored, w.Row(id))
}

// An entry was dead-lettered after repeated crashes, but one handler is still running.
// Failure: F73
func TestDeadEntryThatAServiceEndedTakesNoLateOutcome(t *testing.T) {
	for name, verdict := range overtaken {
		for how, to := range map[string]compensator.State{"cancelled": compensator.Cancelled, "completed": compensator.Succeeded} {
			t.Run(name+"/"+how, func(t *testing.T) {
				u := startDeaf(t, harness.NewWorld(t), verdict)
				u.Exec("UPDATE common_process_log SET state=-2, ended_by='crash', delivery_count=0, lease_until=0, version=version+1 WHERE id=?", u.id.Row())
				if to == compensator.Cancelled {
					require.Equal(t, compensator.CancelResult{WasDead: true}, got[compensator.CancelResult](t)(u.c.Cancel(t.Context(), u.id)))
				} else {
					require.Equal(t, compensator.CompleteResult{WasDead: true}, got[compensator.CompleteResult](t)(u.c.Complete(t.Context(), u.id)))
				}
				require.ErrorIs(t, context.Cause(u.ctx), compensator.ErrCancelled, "the handler's context is cancelled")
				stored := u.Row(u.id)
				u.gate.Open()
				if to == compensator.Succeeded {
					require.Equal(t, to, u.awaitCompleted(verdict).State)
				} else {
					require.Equal(t, to, harness.Receive(t, u.dropped).State)
				}
				require.Equal(t, stored, u.Row(u.id))
			})
		}
	}
}

// The handler writes to the business table in its own transaction, so the table shows whether the payment or the
// handler won.
// Failure: F73
func TestPaymentRacesTheEndOfItsClosing(t *testing.T) {
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	typ := compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, MaxCompensateAttempts: 1, Retry: compensator.Fixed(time.Millisecond), Concurrency: 8}
	closes := func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ harness.Order) error {
		if e.ID.Row()%3 == 0 {
			return errors.New("the store is closed")
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", "closed "+e.ID.String())
		return err
	}
	plain, err := compensator.HandleTx(t.Context(), c, "close_order", closes, &typ)
	require.NoError(t, err)
	typ.Compensate = func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
		_, err := w.DB.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", "undone "+e.ID.String())
		return cmp.Or(err, errors.New("the bank is closed"))
	}
	_, err = compensator.HandleTx(t.Context(), c, "close_undone", closes, &typ)
	require.NoError(t, err)
	w.Run(c)
	rounds, paid, late := 60, 0, 0
	var ids []compensator.EntryID
	for n := 1; n <= rounds; n++ {
		id := w.InsertDue([]string{plain.Name(), "close_undone"}[n%2], n, 1)[0]
		if n%5 == 0 {
			w.Exec("UPDATE common_process_log SET delivery_count=4 WHERE id=? AND state=0 AND delivery_count=0", id.Row())
		}
		ids = append(ids, id)
		if n%4 == 0 {
			w.WaitAllEnded()
		}
		tx := w.Begin(w.DB)
		w.WriteEffect(tx, "paid "+id.String())
		_, err := c.CancelTx(t.Context(), tx, id)
		if errors.As(err, new(*compensator.StateError)) {
			late++
			require.NoError(t, tx.Rollback())
			continue
		}
		require.NoError(t, err)
		paid++
		require.NoError(t, tx.Commit())
	}
	w.WaitAllEnded()
	w.Eventually(func() bool { return w.Count("common_process_log WHERE lease_until>0") == 0 }, "all is settled")
	for _, id := range ids {
		happened := func(what string) int { return w.Count("effects WHERE what=?", what+" "+id.String()) }
		e := w.Entry(c, id)
		cancelled := e.State == compensator.Cancelled
		require.Equal(t, cancelled, happened("paid") == 1, "entry %s: %s by %s", id, e.State, e.EndedBy)
		require.Equal(t, e.State == compensator.Succeeded, happened("closed") == 1, "entry %s: %s by %s", id, e.State, e.EndedBy)
		require.False(t, cancelled && happened("undone") > 0, "entry %s was compensated and paid", id)
	}
	require.NotZero(t, paid)
	require.NotZero(t, late)
	t.Logf("%d paid, %d too late", paid, late)
}
