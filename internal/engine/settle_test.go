package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

func TestOutcomeOfAStuckHandlerWithdrawsItsDeadLettering(t *testing.T) {
	h := newHoldings()
	s := &Engine{holdings: h}
	stuck := &Attempt{Row: processlog.Row{ID: processlog.RowID(1)}, call: call{ctx: t.Context(), stuck: true}}
	h.held[stuck.holdingKey()] = stuck
	deadLetters := func(id processlog.ID, epoch uint32) pendingOutcome {
		return pendingOutcome{attempt: &Attempt{Row: processlog.Row{ID: id, Epoch: epoch}}, deadLetters: true}
	}
	batch := func() []pendingOutcome {
		return []pendingOutcome{{attempt: stuck}, deadLetters(processlog.RowID(1), 0), deadLetters(processlog.RowID(1), 1), deadLetters(processlog.RowID(2), 0)}
	}
	require.Len(t, s.withoutWithdrawn(batch()), 4, "it has not returned")
	stuck.returned.Store(true)
	rest := s.withoutWithdrawn(batch())
	require.Len(t, rest, 3)
	require.Same(t, stuck, rest[0].attempt, "its own outcome stays")
	require.EqualValues(t, 1, rest[1].attempt.Row.Epoch, "and what a person has begun anew")
	require.Equal(t, processlog.RowID(2), rest[2].attempt.Row.ID)
}
