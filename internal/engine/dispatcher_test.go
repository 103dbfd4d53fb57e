package engine

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// Who sees an entry ended records the next one at once: without a slot that one would stand behind a whole backlog.
// Failure: F67
func TestSlotIsFreeBeforeTheOutcomeIsStored(t *testing.T) {
	e, typ := waiting(t, 1)
	stored := make(chan int, 1)
	e.settler.batcher.Flush = func([]settlement) { stored <- typ.slots.Free() }
	a := &Attempt{Type: typ, Row: processlog.Row{ID: processlog.RowID(1), BusinessType: typ.Name, State: processlog.Pending}}
	a.ctx, a.cancel = context.WithCancelCause(t.Context())
	// What comes after the outcome is on its way takes its time.
	e.holdings.mu.Lock()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		e.dispatcher.finish(a, Result{})
	}()
	require.Equal(t, 2, <-stored)
	e.holdings.mu.Unlock()
	<-finished
}

// An attempt that has run out of time passes for stuck, and leaves the place of a suspect to the next one: its handler
// must not begin after that.
func TestHandlerIsNotCalledOnceItsAttemptIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(t.Context(), Config{
			Store: &slowToSettle{}, Log: slog.New(slog.DiscardHandler), ReconcileInterval: time.Hour,
			Begin: func(context.Context) (Transaction, error) {
				time.Sleep(time.Minute)
				return longTx{}, nil
			},
			Extract:     func(base context.Context, _ map[string]string) context.Context { return base },
			ErrorNumber: func(error) uint16 { return 0 },
		})
		called := false
		typ := &Type{Name: "close_order", Timeout: time.Second, Lease: time.Hour, Concurrency: 1, MaxAttempts: 1, Retry: fixed(1000 * time.Hour), slots: &counted{size: 1},
			RunTx: func(context.Context, Transaction, *processlog.Row) error {
				called = true
				return nil
			}}
		require.NoError(t, e.Start(t.Context()))
		row := processlog.Row{ID: processlog.RowID(1), BusinessType: typ.Name, LeaseLeft: time.Hour, DeliveryCount: 1}
		require.NoError(t, e.dispatcher.startClaimed(typ, []processlog.Row{row}, time.Now(), 0))
		<-e.holdings.whenIdle()
		require.False(t, called)
		require.Len(t, e.Problems.list(), 1, "and nothing is counted")
		e.End()
		e.Close()
	})
}
