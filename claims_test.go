package compensator

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The taking out of an entry waits for the database like any outcome, and its stuck handler may return meanwhile.
func TestWhatAStuckHandlerReportsComesBeforeItsTakingOut(t *testing.T) {
	c := &Compensator{}
	c.dispatcher = newDispatcher(c)
	stuck := &attempt{row: Row{ID: RowID(1)}, stuck: true}
	c.dispatcher.held[stuck.holding()] = stuck
	takesOut := func(id EntryID, epoch uint32) settlement {
		return settlement{a: &attempt{row: Row{ID: id, Epoch: epoch}}, takesOut: true}
	}
	batch := func() []settlement {
		return []settlement{{a: stuck}, takesOut(RowID(1), 0), takesOut(RowID(1), 1), takesOut(RowID(2), 0)}
	}
	require.Len(t, c.withdraw(batch()), 4, "it has not returned")
	stuck.returned.Store(true)
	rest := c.withdraw(batch())
	require.Len(t, rest, 3)
	require.Same(t, stuck, rest[0].a, "its own outcome stays")
	require.EqualValues(t, 1, rest[1].a.row.Epoch, "and what a person has begun anew")
	require.Equal(t, RowID(2), rest[2].a.row.ID)
}
