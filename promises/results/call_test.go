package results

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

func wiring(t *testing.T, c *compensator.Compensator, cfg compensator.HandlerConfig[harness.Order], call func(ctx context.Context, e *compensator.Entry) error, more func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error) *compensator.ResultType[harness.Order, Receipt] {
	t.Helper()
	wire, err := compensator.HandleCall(t.Context(), c, "wire", func(ctx context.Context, e *compensator.Entry, o harness.Order) (Receipt, error) {
		var err error
		if call != nil {
			err = call(ctx, e)
		}
		return Receipt{o.Number, e.CallKey()}, err
	}, func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, o harness.Order, r Receipt) error {
		assert.Equal(t, Receipt{o.Number, e.CallKey()}, r)
		if _, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", r.Of); err != nil || more == nil {
			return err
		}
		return more(ctx, tx, e)
	}, &cfg)
	require.NoError(t, err)
	return wire
}

func TestCallThenAndSuccessCommitTogether(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		gate := harness.NewGate()
		var held atomic.Int64
		wire := wiring(t, c, compensator.HandlerConfig[harness.Order]{}, gate.Pass, func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error {
			held.Add(1)
			if w.State(e.ID) == compensator.Succeeded || w.Count("effects") > 0 {
				return errors.New("seen before the commit")
			}
			_, err := c.CompleteTx(ctx, tx, e.ID)
			var refused *compensator.FieldError
			if !errors.As(err, &refused) {
				return errors.New("then must not complete its own entry")
			}
			return nil
		})
		w.Run(c)
		id := w.Record(wire.Type, 42, compensator.Options{})
		harness.Receive(t, gate.Entered)
		require.Zero(t, held.Load())
		w.Eventually(func() bool { // The library's own short transactions come and go.
			return w.Count("information_schema.innodb_trx x JOIN information_schema.processlist p ON p.id=x.trx_mysql_thread_id WHERE p.db=DATABASE()") == 0
		}, "no transaction is open during the call")
		gate.Open()
		_, got, err := wire.Wait(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, Receipt{42, id.String() + "-0"}, got)
		require.Equal(t, 1, w.Count("effects"))
		require.EqualValues(t, 1, held.Load())
	})
}

func TestThenThatFailsRollsBackAndCallsAgain(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		var calls harness.Calls
		var thens atomic.Int64
		var keys [3]string
		wire := wiring(t, c, compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)}, func(_ context.Context, e *compensator.Entry) error {
			keys[calls.Add(e.ID)-1] = e.CallKey()
			return nil
		}, func(context.Context, *compensator.ScopedTx, *compensator.Entry) error {
			switch thens.Add(1) {
			case 1:
				return harness.ErrSoldOut
			case 2:
				panic("in then")
			}
			return nil
		})
		w.Run(c)
		id := w.Record(wire.Type, 1, compensator.Options{})
		e, _, err := wire.Wait(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, 2, e.ProcessCount)
		require.Equal(t, [3]string{e.CallKey(), e.CallKey(), e.CallKey()}, keys)
		require.Equal(t, 1, w.Count("effects"))
		require.Equal(t, 1, w.Count("common_process_log_result"))
	})
}

func TestVerdictsOfCallAndThenDecide(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	var undone harness.Calls
	deadlock := &mysql.MySQLError{Number: 1213, Message: "Deadlock found when trying to get lock"}
	var deadlocks atomic.Int64
	wire := wiring(t, c, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, Retry: compensator.Fixed(0), Compensate: func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
		undone.Add(e.ID)
		return nil
	}}, func(_ context.Context, e *compensator.Entry) error {
		if e.BusinessID == "call" {
			return compensator.Permanent(harness.ErrSoldOut)
		}
		return nil
	}, func(_ context.Context, _ *compensator.ScopedTx, e *compensator.Entry) error {
		switch {
		case e.BusinessID == "then":
			return compensator.Permanent(harness.ErrSoldOut)
		case e.BusinessID == "deadlock" && deadlocks.Add(1) == 1:
			return deadlock
		}
		return nil
	})
	w.Run(c)
	call, then := w.Record(wire.Type, 1, compensator.Options{BusinessID: "call"}), w.Record(wire.Type, 2, compensator.Options{BusinessID: "then"})
	waits := w.Record(wire.Type, 3, compensator.Options{BusinessID: "deadlock"})
	w.WaitState(call, compensator.Compensated)
	w.WaitState(then, compensator.Compensated)
	require.Equal(t, 1, undone.Of(call))
	require.Equal(t, 1, undone.Of(then))
	w.WaitState(waits, compensator.Succeeded)
	require.EqualValues(t, 2, deadlocks.Load())
	require.Zero(t, w.Entry(c, waits).ProcessCount, "a deadlock costs no attempt")
	require.Equal(t, 1, w.Count("effects"))
	require.Equal(t, 1, w.Count("common_process_log_result"))
}

func TestCallThatLostItsEntryHasNoEffect(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		var calls harness.Calls
		wire := wiring(t, c, compensator.HandlerConfig[harness.Order]{}, func(_ context.Context, e *compensator.Entry) error {
			if calls.Add(e.ID) == 1 {
				w.Exec("UPDATE common_process_log SET version=version+1, lease_until=0, delivery_count=0 WHERE id=?", e.ID.Row())
			}
			return nil
		}, nil)
		w.Run(c)
		id := w.Record(wire.Type, 1, compensator.Options{})
		w.WaitState(id, compensator.Succeeded)
		require.Equal(t, 2, calls.Of(id))
		require.Equal(t, 1, w.Count("effects"))
		require.Equal(t, 1, w.Count("common_process_log_result"))
	})
}

func TestCallThatTakesTooLongIsAFailure(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	wire := wiring(t, c, compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(0), Timeout: 100 * time.Millisecond}, func(ctx context.Context, _ *compensator.Entry) error {
		<-ctx.Done()
		return nil
	}, nil)
	w.Run(c)
	id := w.Record(wire.Type, 1, compensator.Options{})
	w.WaitState(id, compensator.Dead)
	e := w.Entry(c, id)
	require.Contains(t, e.LastError, "too late")
	require.Equal(t, 2, e.ProcessCount)
	require.Zero(t, w.Count("effects"))
}

func TestHandlerThatCompletesItsOwnEntryIsSettled(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		var settled, dropped atomic.Int64
		cfg.Observer.Settled = func(e observe.SettledEvent) {
			if e.State == compensator.Succeeded && e.EndedBy == compensator.EndedByComplete {
				settled.Add(1)
			}
		}
		cfg.Observer.OutcomeDropped = func(observe.SettledEvent) { dropped.Add(1) }
		c := w.New(cfg)
		ship, err := compensator.Declare[harness.Order](t.Context(), c, "ship", nil)
		require.NoError(t, err)
		pay, err := compensator.Handle(t.Context(), c, "pay", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
			return c.InTx(context.WithoutCancel(ctx), func(ctx context.Context, tx *compensator.ScopedTx) error {
				if _, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES ('paid')"); err != nil {
					return err
				}
				if _, err := ship.Record(ctx, tx, harness.Order{}, compensator.Options{}); err != nil {
					return err
				}
				_, err := c.CompleteTx(ctx, tx, e.ID)
				return err
			})
		}, nil)
		require.NoError(t, err)
		w.Run(c)
		id := w.Record(pay, 1, compensator.Options{})
		e, err := pay.Wait(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, compensator.EndedByComplete, e.EndedBy)
		w.Eventually(func() bool { return settled.Load() == 1 }, "the success is settled")
		require.Zero(t, dropped.Load())
		require.Equal(t, 1, w.Count("effects"))
		require.Equal(t, 1, w.Count("common_process_log WHERE business_type='ship'"))
	})
}

func TestCallAndResultWithoutAServer(t *testing.T) {
	c, err := compensator.New(t.Context(), compensator.Config{Store: memory.NewStore()})
	require.NoError(t, err)
	defer c.Close()
	pay := paying(t, c, compensator.HandlerConfig[harness.Order]{}, nil)
	var thens int
	wire, err := compensator.HandleCall(t.Context(), c, "wire", func(_ context.Context, e *compensator.Entry, o harness.Order) (*Receipt, error) {
		return &Receipt{Number: o.Number}, nil
	}, func(_ context.Context, _ *compensator.ScopedTx, _ *compensator.Entry, _ harness.Order, r *Receipt) error {
		thens++
		r.Of = "filled in by then"
		return nil
	}, nil)
	require.NoError(t, err)
	paid := compensatortest.Call(t, c, pay.Type, harness.Order{Number: 7}, compensator.Options{})
	got, err := pay.Result(t.Context(), paid.ID)
	require.NoError(t, err)
	require.Equal(t, 7, got.Number)
	wired := compensatortest.Call(t, c, wire.Type, harness.Order{Number: 8}, compensator.Options{})
	_, answer, err := wire.Wait(t.Context(), wired.ID)
	require.NoError(t, err)
	require.Equal(t, &Receipt{8, "filled in by then"}, answer)
	require.Equal(t, 1, thens)
}

// TestCallNeedsNoConnectionOfItsOwn runs more calls at the same time than the pool has connections.
func TestCallNeedsNoConnectionOfItsOwn(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	w.DB.SetMaxOpenConns(4)
	c := w.New(w.QuickConfig())
	gate := harness.NewGate()
	wire := wiring(t, c, compensator.HandlerConfig[harness.Order]{Concurrency: 12}, gate.Pass, nil)
	w.Run(c)
	w.RecordMany(c, wire.Type, 12, compensator.Options{})
	for range 12 {
		harness.Receive(t, gate.Entered)
	}
	gate.Open()
	w.Eventually(func() bool { return w.Count("effects") == 12 }, "every call has its effect")
	w.Eventually(func() bool { return w.Count("common_process_log WHERE state=1") == 12 }, "every entry succeeds")
	require.Equal(t, 12, w.Count("common_process_log_result"))
	require.ErrorIs(t, w.DB.QueryRow("SELECT 1 FROM effects GROUP BY what HAVING COUNT(*)>1").Scan(new(int)), sql.ErrNoRows)
}

// The middleware hides the error, hides the panic, or calls the handler again.
func TestHiddenFailureOfATransactionalHandlerCommitsNothing(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		forgiving := func(next compensator.HandlerFunc) compensator.HandlerFunc {
			return func(ctx context.Context, e *compensator.Entry) error {
				defer func() { _ = recover() }()
				if err := next(ctx, e); err != nil && e.BusinessID == "again" {
					return next(ctx, e)
				}
				return nil
			}
		}
		var calls harness.Calls
		work := func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error {
			call := calls.Add(e.ID)
			if _, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", e.BusinessType+e.BusinessID); err != nil || call > 1 {
				return err
			}
			if e.BusinessID == "panic" {
				panic("after the first write")
			}
			return harness.ErrSoldOut
		}
		settings := compensator.HandlerConfig[harness.Order]{Middleware: []compensator.Middleware{forgiving}, Retry: compensator.Fixed(0)}
		wire := wiring(t, c, settings, nil, work)
		pay, err := compensator.HandleTx(t.Context(), c, "pay", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ harness.Order) error {
			return work(ctx, tx, e)
		}, &settings)
		require.NoError(t, err)
		w.Run(c)
		for _, orders := range []*compensator.Type[harness.Order]{wire.Type, pay} {
			for _, how := range []string{"error", "panic", "again"} {
				id := w.Record(orders, 1, compensator.Options{BusinessID: how})
				w.WaitState(id, compensator.Succeeded)
				assert.Equal(t, 1, w.Entry(c, id).ProcessCount, "the hidden failure counts")
				assert.Equal(t, 1, w.Count("effects WHERE what=?", orders.Name()+how), "%s %s", orders.Name(), how)
			}
		}
	})
}
