package running

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

// Failure: F69
func TestTransactionalHandlerThatEndsItsTransactionFailsLoudly(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"ddl":      "CREATE TABLE closed_orders (id INT PRIMARY KEY)",
		"commit":   "COMMIT",
		"rollback": "ROLLBACK",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
				c := w.New(cfg)
				orders := harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1}, func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry) error {
					_, err := tx.ExecContext(ctx, statement)
					return err
				})
				w.Run(c)
				id := w.RecordThrough(cfg.DB, orders, 1, compensator.Options{})
				w.WaitState(id, compensator.Dead)
				require.Equal(t, compensator.EndedByExhausted, w.Entry(c, id).EndedBy)
				require.Contains(t, w.Entry(c, id).LastError, "transaction")
			})
		})
	}
}

// The server reports only that a transaction is open, not that a second one has begun.
// Failure: F69
func TestNestedBeginOfATransactionalHandlerIsSeenByTheConnector(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders := harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1}, func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry) error {
		_, err := tx.ExecContext(ctx, "BEGIN")
		return err
	})
	w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	w.WaitState(id, compensator.Dead)
	require.Contains(t, w.Entry(c, id).LastError, "transaction")
}

// Failure: F69
func TestTransactionalHandlerThatSwallowsAServersRollbackLeavesNothing(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		var ran harness.Calls
		orders := harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)}, func(_ context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error {
			if ran.Add(e.ID) == 1 {
				w.Deadlock(tx) // Meet the deadlock without calling Receipt.Committed.
			}
			return nil
		})
		w.Run(c)
		id := w.Record(orders, 1, compensator.Options{})
		w.WaitState(id, compensator.Succeeded)
		require.Equal(t, 2, ran.Of(id))
		require.Equal(t, 1, w.Count("effects"))
		require.Equal(t, 1, w.Entry(c, id).ProcessCount)
	})
}

// After a handler returns nil, the library sends one statement before the commit.
func TestOutcomeTheDatabaseDidNotTakeIsNoFailureOfATransactionalHandler(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"request lost", "reply lost"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			proxy, db := w.OpenProxied(true)
			cfg := w.QuickConfig()
			cfg.DB = db
			c := w.New(cfg)
			var ran harness.Calls
			orders := harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1}, func(_ context.Context, _ *compensator.ScopedTx, e *compensator.Entry) error {
				ran.Add(e.ID)
				return nil
			})
			rule := harness.CommitFaults[fault]
			rule.Match = faultproxy.Contains("SET state=1")
			trap := proxy.Arm(rule)
			w.Run(c)
			id := w.Record(orders, 1, compensator.Options{})
			w.WaitState(id, compensator.Succeeded)
			require.Equal(t, 1, trap.Fired())
			require.Equal(t, 2, ran.Of(id))
			require.Equal(t, 1, w.Count("effects"))
			require.Zero(t, w.Entry(c, id).ProcessCount)
		})
	}
}

func TestTransactionalHandlerThatWasInTimeDoesNotFailBecauseItsRowIsLocked(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		ended := make(chan struct{}, 100)
		cfg.Observer.AttemptEnded = func(observe.AttemptEvent) { ended <- struct{}{} }
		c := w.New(cfg)
		holder := w.Begin(w.DB)
		var ran harness.Calls
		orders := harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, Timeout: 500 * time.Millisecond}, func(_ context.Context, _ *compensator.ScopedTx, e *compensator.Entry) error {
			if ran.Add(e.ID) > 1 {
				return nil
			}
			_, err := holder.Exec("SELECT id FROM common_process_log WHERE id=? FOR UPDATE", e.ID.Row())
			return err
		})
		w.Run(c)
		id := w.Record(orders, 1, compensator.Options{})
		w.Wait(ended, "the first attempt has timed out, waiting for its row")
		require.NoError(t, holder.Rollback())
		w.WaitState(id, compensator.Succeeded)
		require.Equal(t, 2, ran.Of(id))
		require.Equal(t, 1, w.Count("effects"))
		require.Zero(t, w.Entry(c, id).ProcessCount)
	})
}

func TestTimeoutOfATransactionalHandlerIsNotThatOfItsOutcome(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	proxy, db := w.OpenProxied(true)
	cfg := w.QuickConfig()
	cfg.DB = db
	c := w.New(cfg)
	orders := harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{Timeout: time.Second, MaxAttempts: 1}, func(context.Context, *compensator.ScopedTx, *compensator.Entry) error { return nil })
	slow := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("SET state=1"), Nth: 1, Fault: faultproxy.DelayRequest, Delay: 2 * time.Second})
	w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	w.WaitState(id, compensator.Succeeded)
	require.Equal(t, 1, slow.Fired())
	require.Equal(t, 1, w.Count("effects"))
	require.Zero(t, w.Entry(c, id).ProcessCount)
}

func TestTransactionalHandlerThatReturnsTooLateLeavesNoEffect(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	// HandleTransactional writes the effect before it calls the function below. On a slow machine, this write alone may
	// exceed the timeout, so that the attempt fails too early. So allow many attempts.
	orders := harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{Timeout: 50 * time.Millisecond, Retry: compensator.Fixed(0), MaxAttempts: 1000}, func(ctx context.Context, _ *compensator.ScopedTx, _ *compensator.Entry) error {
		<-ctx.Done()
		return nil
	})
	w.Run(c)
	w.Record(orders, 1, compensator.Options{})
	w.Eventually(func() bool { return w.Count("common_process_log WHERE last_error LIKE '%too late%'") == 1 }, "an attempt returns too late")
	require.Zero(t, w.Count("effects"))
}

// Failure: F68
func TestHandlerMayCancelItsOwnEntry(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	dropped := make(chan observe.SettledEvent, 10)
	cfg.Observer.OutcomeDropped = func(e observe.SettledEvent) { dropped <- e }
	c := w.New(cfg)
	orders, err := compensator.Handle(t.Context(), c, "close_order", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
		found, err := c.Cancel(ctx, e.ID)
		assert.NoError(t, err)
		assert.True(t, found.WasRunning, "it was this very attempt")
		assert.ErrorIs(t, context.Cause(ctx), compensator.ErrCancelled)
		return nil
	}, nil)
	require.NoError(t, err)
	w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	event := harness.Receive(t, dropped)
	require.Equal(t, compensator.Cancelled, event.State)
	require.Equal(t, compensator.EndedByCancel, event.EndedBy, "the outcome did not come too late")
	require.Equal(t, compensator.Cancelled, w.State(id))
}

// Failure: F68
func TestTransactionalHandlerThatCancelsItsOwnEntryLeavesNoEffect(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders := harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{}, func(ctx context.Context, _ *compensator.ScopedTx, e *compensator.Entry) error {
		_, err := c.Cancel(context.WithoutCancel(ctx), e.ID)
		assert.NoError(t, err)
		return nil
	})
	stop := w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	w.WaitState(id, compensator.Cancelled)
	require.NoError(t, stop(), "the handler and its transaction have ended")
	require.Zero(t, w.Count("effects"))
}

// Failure: F68
func TestHandlerThatLocksItsOwnRowIsRefusedNotBlocked(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.Lease = 30 * time.Second
	c := w.New(cfg)
	orders := harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{}, func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error {
		if _, err := tx.ExecContext(ctx, "UPDATE common_process_log SET user_name='me' WHERE id=?", e.ID.Row()); err != nil {
			return err
		}
		assert.ErrorIs(t, harness.ErrOf(c.Cancel(ctx, e.ID)), compensator.ErrBusy, "its own transaction holds the row")
		return nil
	})
	w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	w.WaitState(id, compensator.Succeeded)
	require.Equal(t, 1, w.Count("effects"))
}

func TestFailedTransactionalHandlerLeavesOnlyItsFailure(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		orders := harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(0)}, func(context.Context, *compensator.ScopedTx, *compensator.Entry) error {
			return errors.New("the account is closed")
		})
		w.Run(c)
		id := w.RecordThrough(cfg.DB, orders, 1, compensator.Options{})
		w.WaitState(id, compensator.Dead)
		require.Zero(t, w.Count("effects"))
		require.Equal(t, "the account is closed", w.Entry(c, id).LastError)
	})
}

// Failure: F8
func TestEntryRecordedByAHandlerExistsExactlyIfItSucceeds(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c := w.New(w.QuickConfig())
	mails, sent := harness.HandleCounted(t, c, "send_mail", compensator.HandlerConfig[harness.Order]{}, nil)
	var ran harness.Calls
	orders := harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)}, func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error {
		_, err := mails.Record(ctx, tx, harness.Order{}, compensator.Options{BusinessID: e.ID.String()})
		if ran.Add(e.ID) < 3 {
			err = errors.Join(err, fmt.Errorf("after the record"))
		}
		return err
	})
	w.Run(c)
	for i := range 5 {
		w.Record(orders, i, compensator.Options{})
	}
	w.WaitAllEnded()
	require.Equal(t, 5, w.Count("common_process_log WHERE business_type='send_mail' AND state=1"))
	require.Equal(t, 5, sent.Total())
	require.Equal(t, 5, w.Count("effects"))
}

func TestLostCommitOfAHandlerIsRepeatedWithinItsLease(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	proxy, db := w.OpenProxied(true)
	cfg := w.QuickConfig()
	cfg.DB, cfg.Lease = db, time.Hour
	c := w.New(cfg)
	_ = harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)}, func(context.Context, *compensator.ScopedTx, *compensator.Entry) error { return nil })
	ids := w.InsertDue("pay_order", 1, 1)
	trap := proxy.Arm(faultproxy.Rule{Match: harness.MatchNext(faultproxy.Contains("SET state=1"), faultproxy.Commit()), Nth: 1, Fault: faultproxy.DropRequest})
	w.Run(c)
	w.WaitState(ids[0], compensator.Succeeded)
	require.Equal(t, 1, trap.Fired())
	require.Equal(t, 1, w.Count("effects"))
}

// If a transactional handler could complete its own entry, the success of the attempt would find a changed row, and the
// library would drop the success.
// Failure: F68
func TestTransactionalHandlerDoesNotEndItsOwnEntry(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		told := make(chan error, 30)
		orders := harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{}, func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error {
			for _, handle := range []compensator.Tx{tx, harness.Traced{Tx: tx}, harness.Known{Traced: harness.Traced{Tx: tx}, On: tx}} {
				for _, ref := range []compensator.Ref{e.ID, e.IdempotencyKey} {
					_, completed := c.CompleteTx(ctx, handle, ref)
					_, cancelled := c.CancelTx(ctx, handle, ref)
					told <- completed
					told <- cancelled
					told <- c.RescheduleTx(ctx, handle, ref, time.Hour)
					told <- admin.Of(c).SettleManuallyTx(ctx, handle, ref, admin.AuditInfo{Actor: "mei", Reason: "done"})
				}
			}
			return nil
		})
		w.Run(c)
		id := w.RecordThrough(db, orders, 1, compensator.Options{})
		for range 24 {
			var refused *compensator.FieldError
			require.ErrorAs(t, <-told, &refused)
			require.Equal(t, "ref", refused.Field)
		}
		w.WaitState(id, compensator.Succeeded)
		require.Empty(t, told, "one run")
		require.Equal(t, 1, w.Count("effects"), "its transaction is usable")
	})
}

// If the other transaction could complete the entry, the handler's transaction would be rolled back, and the entry
// would show a success without its effect.
// Failure: F68
func TestTransactionalHandlerDoesNotCompleteItsOwnEntryInAnotherTransaction(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c, other := w.New(cfg), w.New(cfg)
		const tries = 10
		told := make(chan error, 10*tries)
		try := func(ctx context.Context, e *compensator.Entry) {
			work, err := compensator.Declare[harness.Order](ctx, other, e.BusinessType, nil)
			assert.NoError(t, err)
			told <- harness.ErrOf(c.Complete(ctx, e.ID))
			told <- harness.ErrOf(other.Complete(ctx, e.IdempotencyKey))
			told <- admin.Of(c).SettleManually(ctx, e.ID, admin.AuditInfo{Actor: "mei", Reason: "done"})
			tx, err := db.BeginTx(ctx, nil)
			if !assert.NoError(t, err) {
				return
			}
			defer tx.Rollback()
			told <- harness.ErrOf(c.CompleteTx(ctx, tx, e.ID))
			told <- harness.ErrOf(other.CompleteTx(ctx, tx, e.ID))
			_, err = work.Once(ctx, tx, e.IdempotencyKey, harness.Order{})
			told <- err
			assert.NotErrorIs(t, tx.Commit(), compensator.ErrTxAborted)
			told <- c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
				return harness.ErrOf(c.CompleteTx(ctx, tx, e.ID))
			})
			told <- c.WithRetry(ctx, "other-work", func(ctx context.Context) error {
				return c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
					return harness.ErrOf(c.CompleteTx(ctx, tx, e.ID))
				})
			})
			told <- harness.ErrOf(c.Complete(context.WithoutCancel(ctx), e.ID))
			wrapped, err := sqlx.NewDb(db, "mysql").BeginTxx(ctx, nil)
			if !assert.NoError(t, err) {
				return
			}
			defer wrapped.Rollback()
			told <- harness.ErrOf(c.CompleteTx(ctx, wrapped, e.ID))
		}
		effect := func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES ('done')")
			return err
		}
		inTx, err := compensator.HandleTx(t.Context(), c, "in_tx", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ harness.Order) error {
			try(ctx, e)
			return effect(ctx, tx)
		}, nil)
		require.NoError(t, err)
		called, err := compensator.HandleCall(t.Context(), c, "called", func(ctx context.Context, e *compensator.Entry, _ harness.Order) (int, error) {
			try(ctx, e)
			return 1, nil
		}, func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ harness.Order, _ int) error {
			try(ctx, e)
			return effect(ctx, tx)
		}, nil)
		require.NoError(t, err)
		w.Run(c)
		ids := []compensator.EntryID{w.RecordThrough(db, inTx, 1, compensator.Options{}), w.RecordThrough(db, called.Type, 1, compensator.Options{})}
		for range 3 * tries {
			var refused *compensator.FieldError
			require.ErrorAs(t, harness.Receive(t, told), &refused)
			require.Equal(t, "ref", refused.Field)
		}
		for _, id := range ids {
			w.WaitState(id, compensator.Succeeded)
			require.Equal(t, compensator.EndedByHandler, w.Entry(c, id).EndedBy)
		}
		require.Empty(t, told, "one run each")
		require.Equal(t, 2, w.Count("effects"))
	})
}

// The handler's own transaction is rolled back, so another attempt must do the work.
// Failure: F68
func TestTransactionalHandlerDoesNotCompleteItsOwnEntryAfterItsLease(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	var calls harness.Calls
	told := make(chan error, 10)
	orders, err := compensator.HandleTx(t.Context(), c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ harness.Order) error {
		first := calls.Add(e.ID) == 1
		if first {
			w.Exec("UPDATE common_process_log SET version=version+1, token=X'07', lease_until=1 WHERE id=?", e.ID.Row())
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), compensator.ErrLeaseLost)
			still := context.WithoutCancel(ctx)
			told <- harness.ErrOf(c.Complete(still, e.ID))
			told <- c.InTx(still, func(ctx context.Context, tx *compensator.ScopedTx) error {
				return harness.ErrOf(c.CompleteTx(ctx, tx, e.IdempotencyKey))
			})
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES ('done')")
		if first {
			return nil
		}
		return err
	}, nil)
	require.NoError(t, err)
	id := w.Record(orders, 1, compensator.Options{})
	w.Run(c)
	for range 2 {
		require.ErrorAs(t, harness.Receive(t, told), new(*compensator.FieldError))
	}
	w.WaitState(id, compensator.Succeeded)
	require.Equal(t, compensator.EndedByHandler, w.Entry(c, id).EndedBy)
	require.Equal(t, 1, w.Count("effects"))
}
