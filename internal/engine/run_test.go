package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// Failure: F67
func TestSlotIsFreeBeforeTheOutcomeIsStored(t *testing.T) {
	e, typ := waiting(t, 1)
	stored := make(chan int, 1)
	e.outcomes.ordinary.Flush = func([]pendingOutcome) { stored <- typ.slots.Available() }
	a := &Attempt{Type: typ, Row: processlog.Row{ID: processlog.RowID(1), BusinessType: typ.Name, State: processlog.Pending}}
	a.ctx, a.cancel = context.WithCancelCause(t.Context())
	a.timeout = new(callTimeout)
	e.holdings.mu.Lock()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		e.Finish(a, Result{})
	}()
	require.Equal(t, 2, <-stored)
	e.holdings.mu.Unlock()
	<-finished
}
