package compensator_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
)

// transactional registers a transactional type whose handler writes its effect and then does what more says.
func transactional(t *testing.T, c *compensator.Compensator, cfg compensator.TypeConfig, more func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error) *compensator.Type[order] {
	t.Helper()
	orders, err := compensator.HandleTx(c, "pay_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ order) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", e.ID.String()); err != nil {
			return err
		}
		return more(ctx, tx, e)
	}, cfg)
	require.NoError(t, err)
	return orders
}

func TestTransactionalHandlerThatEndsItsTransactionFailsLoudly(t *testing.T) {
	for name, statement := range map[string]string{
		"ddl":      "CREATE TABLE closed_orders (id INT PRIMARY KEY)",
		"commit":   "COMMIT",
		"rollback": "ROLLBACK",
	} {
		t.Run(name, func(t *testing.T) {
			inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
				c := w.new(cfg)
				orders := transactional(t, c, compensator.TypeConfig{MaxProcessCount: 1}, func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry) error {
					_, err := tx.ExecContext(ctx, statement)
					return err
				})
				w.run(c)
				id := putThrough(w, cfg.DB, orders, 1, compensator.Options{})
				w.waitState(id, compensator.Dead)
				require.Equal(t, compensator.EndedByExhausted, w.entry(c, id).EndedBy)
				require.Contains(t, w.entry(c, id).LastError, "transaction")
			})
		})
	}
}

// A server asked whether a transaction is open cannot tell that it is another one.
func TestNestedBeginOfATransactionalHandlerIsSeenByTheConnector(t *testing.T) {
	w := newWorld(t)
	c := w.new(w.quick())
	orders := transactional(t, c, compensator.TypeConfig{MaxProcessCount: 1}, func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry) error {
		_, err := tx.ExecContext(ctx, "BEGIN")
		return err
	})
	w.run(c)
	id := put(w, orders, 1, compensator.Options{})
	w.waitState(id, compensator.Dead)
	require.Contains(t, w.entry(c, id).LastError, "transaction")
}

func TestTransactionalHandlerThatSwallowsAServersRollbackLeavesNothing(t *testing.T) {
	inEveryPool(t, func(t *testing.T, w *world, db *sql.DB) {
		cfg := w.quick()
		cfg.DB = db
		c := w.new(cfg)
		var ran calls
		orders := transactional(t, c, compensator.TypeConfig{Retry: compensator.Fixed(0)}, func(_ context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error {
			if ran.add(e.ID) == 1 {
				w.deadlock(tx) // and nobody says so
			}
			return nil
		})
		w.run(c)
		id := put(w, orders, 1, compensator.Options{})
		w.waitState(id, compensator.Succeeded)
		require.Equal(t, 2, ran.of(id))
		require.Equal(t, 1, w.count("effects"))
		require.Equal(t, 1, w.entry(c, id).ProcessCount)
	})
}

// Between the handler's nil and its commit stands one statement of ours. That the database refuses or loses it
// is no failure of the entry's.
func TestOutcomeTheDatabaseDidNotTakeIsNoFailureOfATransactionalHandler(t *testing.T) {
	for _, fault := range []string{"request lost", "reply lost"} {
		t.Run(fault, func(t *testing.T) {
			w := newWorld(t)
			proxy, db := w.proxied(true)
			cfg := w.quick()
			cfg.DB = db
			c := w.new(cfg)
			var ran calls
			orders := transactional(t, c, compensator.TypeConfig{MaxProcessCount: 1}, func(_ context.Context, _ *compensator.ScopedTx, e *compensator.Entry) error {
				ran.add(e.ID)
				return nil
			})
			rule := broken[fault]
			rule.Match = faultproxy.Contains("SET state=1")
			trap := proxy.Arm(rule)
			w.run(c)
			id := put(w, orders, 1, compensator.Options{})
			w.waitState(id, compensator.Succeeded)
			require.Equal(t, 1, trap.Fired())
			require.Equal(t, 2, ran.of(id))
			require.Equal(t, 1, w.count("effects"))
			require.Zero(t, w.entry(c, id).ProcessCount)
		})
	}
}

func TestTransactionalHandlerThatWasInTimeDoesNotFailBecauseItsRowIsLocked(t *testing.T) {
	inEveryPool(t, func(t *testing.T, w *world, db *sql.DB) {
		cfg := w.quick()
		cfg.DB = db
		ended := make(chan struct{}, 100)
		cfg.Observer.AttemptEnded = func(compensator.AttemptEvent) { ended <- struct{}{} }
		c := w.new(cfg)
		holder := w.begin(w.DB)
		var ran calls
		orders := transactional(t, c, compensator.TypeConfig{MaxProcessCount: 1, Timeout: 500 * time.Millisecond}, func(_ context.Context, _ *compensator.ScopedTx, e *compensator.Entry) error {
			if ran.add(e.ID) > 1 {
				return nil
			}
			_, err := holder.Exec("SELECT id FROM common_process_log WHERE id=? FOR UPDATE", e.ID.Row())
			return err
		})
		w.run(c)
		id := put(w, orders, 1, compensator.Options{})
		w.wait(ended, "the first attempt has timed out, waiting for its row")
		require.NoError(t, holder.Rollback())
		w.waitState(id, compensator.Succeeded)
		require.Equal(t, 2, ran.of(id))
		require.Equal(t, 1, w.count("effects"))
		require.Zero(t, w.entry(c, id).ProcessCount)
	})
}

func TestTimeoutOfATransactionalHandlerIsNotThatOfItsOutcome(t *testing.T) {
	w := newWorld(t)
	proxy, db := w.proxied(true)
	cfg := w.quick()
	cfg.DB = db
	c := w.new(cfg)
	orders := transactional(t, c, compensator.TypeConfig{Timeout: time.Second, MaxProcessCount: 1}, func(context.Context, *compensator.ScopedTx, *compensator.Entry) error { return nil })
	slow := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("SET state=1"), Nth: 1, Fault: faultproxy.DelayRequest, Delay: 2 * time.Second})
	w.run(c)
	id := put(w, orders, 1, compensator.Options{})
	w.waitState(id, compensator.Succeeded)
	require.Equal(t, 1, slow.Fired())
	require.Equal(t, 1, w.count("effects"))
	require.Zero(t, w.entry(c, id).ProcessCount)
}

func TestTransactionalHandlerThatReturnsTooLateLeavesNoEffect(t *testing.T) {
	w := newWorld(t)
	c := w.new(w.quick())
	orders := transactional(t, c, compensator.TypeConfig{Timeout: 50 * time.Millisecond, MaxProcessCount: 1}, func(ctx context.Context, _ *compensator.ScopedTx, _ *compensator.Entry) error {
		<-ctx.Done()
		return nil
	})
	w.run(c)
	id := put(w, orders, 1, compensator.Options{})
	w.waitState(id, compensator.Dead)
	require.Contains(t, w.entry(c, id).LastError, "too late")
	require.Zero(t, w.count("effects"))
}

func TestHandlerMayCancelItsOwnEntry(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	dropped := make(chan compensator.SettledEvent, 10)
	cfg.Observer.OutcomeDropped = func(e compensator.SettledEvent) { dropped <- e }
	c := w.new(cfg)
	orders, err := compensator.Handle(c, "close_order", func(ctx context.Context, e *compensator.Entry, _ order) error {
		found, err := c.Cancel(ctx, e.ID)
		assert.NoError(t, err)
		assert.True(t, found.WasRunning, "it was this very attempt")
		assert.ErrorIs(t, context.Cause(ctx), compensator.ErrCancelled)
		return nil
	}, compensator.TypeConfig{})
	require.NoError(t, err)
	w.run(c)
	id := put(w, orders, 1, compensator.Options{})
	require.Equal(t, compensator.Cancelled, next(t, dropped).State)
	require.Equal(t, compensator.Cancelled, w.state(id))
}

func TestTransactionalHandlerThatCancelsItsOwnEntryLeavesNoEffect(t *testing.T) {
	w := newWorld(t)
	c := w.new(w.quick())
	orders := transactional(t, c, compensator.TypeConfig{}, func(ctx context.Context, _ *compensator.ScopedTx, e *compensator.Entry) error {
		_, err := c.Cancel(context.WithoutCancel(ctx), e.ID)
		assert.NoError(t, err)
		return nil
	})
	stop := w.run(c)
	id := put(w, orders, 1, compensator.Options{})
	w.waitState(id, compensator.Cancelled)
	require.NoError(t, stop(), "the handler and its transaction have come to their end")
	require.Zero(t, w.count("effects"))
}

func TestHandlerThatLocksItsOwnRowIsRefusedNotBlocked(t *testing.T) {
	w := newWorld(t)
	cfg := w.quick()
	cfg.Lease = 30 * time.Second
	c := w.new(cfg)
	orders := transactional(t, c, compensator.TypeConfig{}, func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error {
		if _, err := tx.ExecContext(ctx, "UPDATE common_process_log SET user_name='me' WHERE id=?", e.ID.Row()); err != nil {
			return err
		}
		assert.ErrorIs(t, c.Complete(ctx, e.ID), compensator.ErrBusy, "its own transaction holds the row")
		return nil
	})
	w.run(c)
	id := put(w, orders, 1, compensator.Options{})
	w.waitState(id, compensator.Succeeded)
	require.Equal(t, 1, w.count("effects"))
}

func TestFailedTransactionalHandlerLeavesOnlyItsFailure(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		c := w.new(cfg)
		orders := transactional(t, c, compensator.TypeConfig{MaxProcessCount: 2, Retry: compensator.Fixed(0)}, func(context.Context, *compensator.ScopedTx, *compensator.Entry) error {
			return errors.New("the account is closed")
		})
		w.run(c)
		id := putThrough(w, cfg.DB, orders, 1, compensator.Options{})
		w.waitState(id, compensator.Dead)
		require.Zero(t, w.count("effects"))
		require.Equal(t, "the account is closed", w.entry(c, id).LastError)
	})
}

func TestEntryRecordedByAHandlerExistsExactlyIfItSucceeds(t *testing.T) {
	w := newWorld(t).withRedis()
	c := w.new(w.quick())
	mails, sent := numbered(t, c, "send_mail", compensator.TypeConfig{}, nil)
	var ran calls
	orders := transactional(t, c, compensator.TypeConfig{Retry: compensator.Fixed(0)}, func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error {
		_, err := mails.Record(ctx, tx, order{}, compensator.Options{BusinessID: e.ID.String()})
		if ran.add(e.ID) < 3 {
			err = errors.Join(err, fmt.Errorf("after the record"))
		}
		return err
	})
	w.run(c)
	for i := range 5 {
		put(w, orders, i, compensator.Options{})
	}
	w.waitAllEnded()
	require.Equal(t, 5, w.count("common_process_log WHERE business_type='send_mail' AND state=1"))
	require.Equal(t, 5, sent.total())
	require.Equal(t, 5, w.count("effects"))
}
