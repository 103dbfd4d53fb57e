package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// A person requeues an entry. The entry may begin to run again in this process before the answer to the requeue arrives here.
// The answer must then end the earlier attempt, and not the new one.
// Failure: F57
func TestChangeEndsOnlyTheAttemptsThatItHasOvertaken(t *testing.T) {
	h := newHoldings()
	hold := func(epoch uint32, version uint64) *Attempt {
		a := &Attempt{Row: processlog.Row{ID: processlog.RowID(1), Epoch: epoch, Version: version}}
		a.ctx, a.cancel = context.WithCancelCause(t.Context())
		h.held[a.holdingKey()] = a
		return a
	}
	overtaken, anew := hold(0, 5), hold(1, 7)
	h.cancel(&processlog.Row{ID: processlog.RowID(1), Version: 5}, processlog.ErrCancelled)
	require.ErrorIs(t, context.Cause(overtaken.ctx), processlog.ErrCancelled)
	require.NoError(t, anew.ctx.Err())
}
