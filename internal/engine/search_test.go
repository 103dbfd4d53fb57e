package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

type wantedOnly struct {
	processlog.Store
	wanted int
}

func (s *wantedOnly) Claim(_ context.Context, want []processlog.Wanted, _ processlog.Token, _ time.Duration, _ func(*processlog.Row) bool) (processlog.Claimed, error) {
	s.wanted = len(want)
	return processlog.Claimed{}, nil
}

// searching returns an engine with one ordered type. Order.Find of this type does not query the database for due
// entries that are not blocked. It calls the function search in place of the query, and returns as many entries as
// search says.
func searching(t *testing.T, search func(typ *Type) (runnable int)) (*Engine, *Type, *wantedOnly) {
	t.Helper()
	store := &wantedOnly{}
	e, _ := waitingOn(t, 0, Config{Store: store})
	require.NoError(t, e.Register(Type{Name: "book", Concurrency: 100, Lease: time.Hour}, withSlots))
	typ := e.TypeNamed("book")
	typ.AttachOrder(Order{
		Find: func(context.Context) (due []processlog.ID, more bool, err error) {
			for i := range search(typ) {
				due = append(due, processlog.RowID(uint64(i+1)))
			}
			return due, false, nil
		},
		Separate: func(attempts []*Attempt) (first, blocked []*Attempt, giveUp func() error) { return attempts, nil, nil },
	})
	e.claimSchedule.prepare()
	return e, typ, store
}

func claimWith(e *Engine, typ *Type) ClaimResult {
	return e.claimDue(typ, typ.slots.Take(typ.CallsFor(processlog.MaxRows)), false)
}

func TestSearchForEntriesThatAreNotBlockedHoldsOneSlot(t *testing.T) {
	var free []int
	e, typ, store := searching(t, func(typ *Type) int {
		free = append(free, typ.slots.Available())
		return 10
	})
	claimWith(e, typ)
	require.Equal(t, []int{99}, free)
	require.Equal(t, 10, store.wanted)
	require.Equal(t, 100, typ.slots.Available(), "no slot is left over")
}

// While the search runs, other entries take all slots except the slot of the search. The search finds ten entries. The
// claim leases only one of them, because it has only this one slot. The next claim must lease the other nine entries
// without another search.
func TestSearchThatFindsMoreThanSlotsLosesNoEntry(t *testing.T) {
	e, typ, store := searching(t, func(typ *Type) int {
		typ.slots.Take(100)
		return 10
	})
	got := claimWith(e, typ)
	require.True(t, got.Full || got.LostRace, "there is more to claim")
	require.Equal(t, 1, store.wanted)
	typ.slots.Release(99)
	typ.order.Find = func(context.Context) ([]processlog.ID, bool, error) { panic("the entries were found already") }
	claimWith(e, typ)
	require.Equal(t, 9, store.wanted)
}
