package transactional

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// oneEntry accepts no outcome outside a transaction.
type oneEntry struct{ processlog.Store }

func (oneEntry) Claim(_ context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, _ func(*processlog.Row) bool) (found processlog.Claimed, err error) {
	found.Mine = []processlog.Row{{ID: want[0].ID, BusinessType: "close_order", Version: 1, Token: token, LeaseLeft: lease, DeliveryCount: 1}}
	return found, nil
}

func (oneEntry) SettleTx(context.Context, processlog.Tx, processlog.Token, processlog.Outcome) error {
	return nil
}

func (oneEntry) Settle(context.Context, processlog.Token, []processlog.Outcome) ([]processlog.Settled, error) {
	return nil, errors.New("gone away")
}

type succeedingTx struct{ processlog.Tx }

func (succeedingTx) Over() error   { return nil }
func (succeedingTx) Commit() error { return nil }
func (succeedingTx) Rollback()     {}

// attempt returns what each attempt ended with, and the time of the COMMIT for each stored outcome.
func attempt(t *testing.T, beginTakes time.Duration, handler Handler) (ended []observe.Verdict, stored []time.Time) {
	t.Helper()
	e := engine.New(t.Context(), engine.Config{
		Store: oneEntry{}, Log: slog.New(slog.DiscardHandler), ReconcileInterval: time.Hour, StopTimeout: time.Hour,
		Extract:     func(base context.Context, _ map[string]string) context.Context { return base },
		ErrorNumber: func(error) uint16 { return 0 },
	})
	t.Cleanup(e.Close)
	e.AttachWatcher(func(w *engine.Watcher) {
		w.Stored = func(_ *processlog.Row, _ *processlog.Outcome, _ processlog.Token, sentAt time.Time) {
			stored = append(stored, sentAt)
		}
	})
	e.Hooks.Ended = append(e.Hooks.Ended, func(_ *engine.Attempt, end engine.Result, counted bool) {
		assert.False(t, counted)
		ended = append(ended, verdict.ForObserver(end.Err))
	})
	transactions := New(e, Settings{Begin: func(context.Context) (Transaction, error) {
		time.Sleep(beginTakes)
		return succeedingTx{}, nil
	}})
	require.NoError(t, e.Register(engine.Type{Name: "close_order", Timeout: time.Minute, Lease: time.Hour, Concurrency: 1, MaxAttempts: 1,
		Retry: func(int) time.Duration { return time.Hour }}, func(t *engine.Type) { transactions.Attach(t, handler, nil) }))
	require.NoError(t, e.Start(t.Context(), true))
	found, err := e.ClaimWithSlots(e.TypeNamed("close_order"), []processlog.Wanted{{ID: processlog.RowID(1)}}, 1)
	require.NoError(t, err)
	e.RunClaimed(found)
	_ = e.Drain() // the outcome of an attempt that came too late is not stored
	e.RunEnded()
	return ended, stored
}

// Begin takes longer than the timeout of the attempt. Such an attempt counts as stuck, and another entry may use its
// slot. So the handler must not be called any more.
func TestHandlerIsNotCalledOnceItsAttemptIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, stored := attempt(t, 2*time.Minute, func(context.Context, Transaction, *processlog.Row) error {
			t.Error("the handler was called")
			return nil
		})
		require.Empty(t, stored)
		require.Equal(t, []observe.Verdict{observe.Unavailable}, ended, "nothing is counted")
	})
}

// If a person accepts a loss of the database, the acceptance covers only versions that are older than the acceptance. A
// person may accept a loss while a handler runs. So the time of the handler's success must be the time of the COMMIT.
func TestSuccessIsAsYoungAsItsCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var returned time.Time
		_, stored := attempt(t, 0, func(context.Context, Transaction, *processlog.Row) error {
			time.Sleep(10 * time.Second)
			returned = time.Now()
			return nil
		})
		require.Len(t, stored, 1)
		require.False(t, stored[0].Before(returned))
	})
}
