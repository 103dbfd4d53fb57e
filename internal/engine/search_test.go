package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// offering is a Source that offers the entries of a backlog.
type offering struct {
	Source
	next    uint64
	asked   []int // number of entries that each claim asked for
	settled []processlog.QueueOutcome
}

func (s *offering) Scope() Scope { return ScopeAll }

func (s *offering) Claim(_ *Type, n int) (leased processlog.Leased, ok bool) {
	s.asked = append(s.asked, n)
	for range n {
		s.next++
		leased.IDs = append(leased.IDs, processlog.RowID(s.next))
	}
	return leased, true
}

func (s *offering) Settle(_ string, o processlog.QueueOutcome) { s.settled = append(s.settled, o) }

// wantedOnly is a Store that notes which entries claims want, and leases none.
type wantedOnly struct {
	processlog.Store
	wanted int
}

func (s *wantedOnly) Claim(_ context.Context, want []processlog.Wanted, _ processlog.Token, _ time.Duration, _ func(*processlog.Row) bool) (processlog.Claimed, error) {
	s.wanted = len(want)
	return processlog.Claimed{}, nil
}

// searching returns an engine with a serial type that has 100 slots. The function search is called while a claim searches
// for entries that are not blocked. It returns how many of the found entries are not blocked.
func searching(t *testing.T, search func(typ *Type) (runnable int)) (*Engine, *Type, *offering, *wantedOnly) {
	t.Helper()
	store, offers := &wantedOnly{}, &offering{}
	e, _ := waitingOn(t, 0, Config{Store: store})
	e.AttachSource(offers)
	require.NoError(t, e.Register(Type{Name: "book", Concurrency: 100, Lease: time.Hour}, withSlots))
	typ := e.TypeNamed("book")
	typ.AttachOrder(Order{
		Blocked: func(_ context.Context, ids []processlog.ID) ([]processlog.ID, error) {
			return ids[min(len(ids), search(typ)):], nil
		},
		Find: func(context.Context) (due []processlog.ID, more bool, err error) {
			for i := range search(typ) {
				due = append(due, processlog.RowID(uint64(i+1)))
			}
			return due, false, nil
		},
		Separate: func(attempts []*Attempt) (first, blocked []*Attempt, giveUp func() error) { return attempts, nil, nil },
	})
	e.claimSchedule.prepare()
	return e, typ, offers, store
}

// claimWith makes a claim with all free slots.
func claimWith(e *Engine, typ *Type) claimResult {
	return e.claimDue(typ, typ.slots.Take(typ.callsFor(processlog.MaxRows)))
}

// While a claim searches, entries end, and the next entries of their keys need slots. So the search holds only one slot. It
// keeps that slot for the entry that has been due for longest.
func TestSearchForEntriesThatAreNotBlockedHoldsOneSlot(t *testing.T) {
	for name, reach := range map[string]Scope{"queue": ScopeAll, "database": ScopeNone} {
		t.Run(name, func(t *testing.T) {
			var free []int
			e, typ, _, store := searching(t, func(typ *Type) int {
				free = append(free, typ.slots.Available())
				return 10
			})
			if reach == ScopeNone {
				e.AttachSource(noSource{e.types, e.claimSchedule})
			}
			claimWith(e, typ)
			require.Equal(t, []int{99}, free)
			require.Equal(t, 10, store.wanted)
			require.Equal(t, 100, typ.slots.Available(), "no slot is left over")
		})
	}
}

// A claim of a serial type holds one slot while it searches for entries that are not blocked. In this test, other
// entries take all other slots during the search. The search then finds more entries than the claim has slots for.
func TestSearchThatFindsMoreThanSlotsLosesNoEntry(t *testing.T) {
	take := func(typ *Type) int {
		typ.slots.Take(100)
		return 10
	}
	e, typ, offers, store := searching(t, take)
	claimWith(e, typ)
	require.Equal(t, 1, store.wanted)
	back := 0
	for _, o := range offers.settled {
		if !o.Remove && o.In == 0 {
			back++
		}
	}
	require.Equal(t, 9, back, "the queue offers them again at once")
	require.Equal(t, 1, typ.slots.Available())

	e, typ, _, store = searching(t, take)
	e.AttachSource(noSource{e.types, e.claimSchedule})
	got := claimWith(e, typ)
	require.True(t, got.full || got.lostRace, "there is more to claim")
	require.Equal(t, 1, store.wanted)
	typ.slots.Release(99)
	typ.order.Find = func(context.Context) ([]processlog.ID, bool, error) { panic("the entries were found already") }
	claimWith(e, typ)
	require.Equal(t, 9, store.wanted)
}

func TestClaimLooksPastABacklogOfBlockedEntries(t *testing.T) {
	runnable := 0
	e, typ, offers, _ := searching(t, func(*Type) int { return runnable })
	typ.slots.Take(98)
	for range 6 {
		claimWith(e, typ)
	}
	require.Equal(t, []int{2, 4, 8, 16, 32, 64}, offers.asked, "twice as many while all are blocked")
	for range 5 {
		claimWith(e, typ)
	}
	require.Equal(t, processlog.MaxRows, offers.asked[10])
	runnable = 50
	claimWith(e, typ)
	claimWith(e, typ)
	require.Equal(t, 20, offers.asked[12], "one of ten runs, and there are two slots")
	for range 3 {
		runnable = offers.asked[len(offers.asked)-1]
		claimWith(e, typ)
	}
	require.Equal(t, 2, offers.asked[15])
}
