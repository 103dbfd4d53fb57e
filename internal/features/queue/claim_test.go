package queue

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

type offeringQueue struct {
	processlog.Queue
	next    uint64
	asked   []int
	settled []processlog.QueueOutcome
}

func (q *offeringQueue) Claim(_ context.Context, _ string, n int, _ time.Duration) (leased processlog.Leased, err error) {
	q.asked = append(q.asked, n)
	for range n {
		q.next++
		leased.IDs = append(leased.IDs, processlog.RowID(q.next))
	}
	return leased, nil
}

func (q *offeringQueue) Settle(_ context.Context, _ string, batch []processlog.QueueOutcome) error {
	q.settled = append(q.settled, batch...)
	return nil
}

type wantedOnly struct {
	processlog.Store
	wanted int
}

func (s *wantedOnly) Claim(_ context.Context, want []processlog.Wanted, _ processlog.Token, _ time.Duration, _ func(*processlog.Row) bool) (processlog.Claimed, error) {
	s.wanted = len(want)
	return processlog.Claimed{}, nil
}

type countedSlots struct {
	engine.Slots
	free int
}

func (s *countedSlots) Available() int { return s.free }
func (s *countedSlots) Release(n int)  { s.free += n }
func (s *countedSlots) Take(n int) int {
	n = max(0, min(n, s.free))
	s.free -= n
	return n
}

type searching struct {
	q     *Queue
	queue *offeringQueue
	store *wantedOnly
	typ   *engine.Type
	slots *countedSlots
}

// newSearching returns a queue and a type with an ordering key and 100 slots. A claim of the type calls the parameter
// search when it asks which entries are blocked. search returns how many of the entries are not blocked.
func newSearching(t *testing.T, search func(s *countedSlots) (runnable int)) *searching {
	t.Helper()
	s := &searching{queue: &offeringQueue{}, store: &wantedOnly{}, slots: &countedSlots{free: 100}}
	e := engine.New(t.Context(), engine.Config{Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }, Lease: time.Hour, Store: s.store})
	s.q = New(e, Config{Queue: s.queue, Horizon: time.Hour}, false)
	require.NoError(t, e.Register(engine.Type{Name: "book", Concurrency: 100, Lease: time.Hour}, func(typ *engine.Type) {
		typ.AttachSlots(s.slots)
		typ.AttachOrder(engine.Order{
			Blocked: func(_ context.Context, ids []processlog.ID) ([]processlog.ID, error) {
				return ids[min(len(ids), search(s.slots)):], nil
			},
			Separate: func(attempts []*engine.Attempt) (first, blocked []*engine.Attempt, giveUp func() error) {
				return attempts, nil, nil
			},
		})
	}))
	s.typ = e.TypeNamed("book")
	require.NoError(t, e.Start(t.Context(), true))
	t.Cleanup(e.RunEnded)
	return s
}

// claim holds one slot, as each claim of a serial type does.
func (s *searching) claim() engine.ClaimResult {
	calls := s.slots.free
	s.slots.Take(s.typ.SlotsToSearch(calls))
	return s.q.claimDue(s.typ, calls, false)
}

func TestClaimFromTheQueueHoldsOneSlotWhileItSearches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free []int
		s := newSearching(t, func(s *countedSlots) int {
			free = append(free, s.free)
			return 10
		})
		s.claim()
		require.Equal(t, []int{99}, free)
		require.Equal(t, 10, s.store.wanted)
		require.Equal(t, 100, s.slots.free, "no slot is left over")
		<-s.q.outcomes.Done()
	})
}

// Other entries take all other slots while the claim asks which entries are blocked.
func TestClaimWithTooFewSlotsGivesEntriesBackToTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSearching(t, func(s *countedSlots) int {
			s.Take(100)
			return 10
		})
		s.claim()
		require.Equal(t, 1, s.store.wanted)
		<-s.q.outcomes.Done()
		back := 0
		for _, o := range s.queue.settled {
			if !o.Remove && o.In == 0 {
				back++
			}
		}
		require.Equal(t, 9, back, "the queue offers them again at once")
		require.Equal(t, 1, s.slots.free)
	})
}

func TestClaimLooksPastABacklogOfBlockedEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runnable := 0
		s := newSearching(t, func(*countedSlots) int { return runnable })
		s.slots.Take(98)
		for range 6 {
			s.claim()
		}
		require.Equal(t, []int{2, 4, 8, 16, 32, 64}, s.queue.asked, "twice as many while all are blocked")
		for range 5 {
			s.claim()
		}
		require.Equal(t, processlog.MaxRows, s.queue.asked[10])
		runnable = 50
		s.claim()
		s.claim()
		require.Equal(t, 20, s.queue.asked[12], "one of ten runs, and there are two slots")
		for range 3 {
			runnable = s.queue.asked[len(s.queue.asked)-1]
			s.claim()
		}
		require.Equal(t, 2, s.queue.asked[15])
		<-s.q.outcomes.Done()
	})
}

func TestProcessThatCameForNothingHoldsBack(t *testing.T) {
	var c claims
	c.reset()
	require.Zero(t, c.of("refund").raceDelay())
	for range 2 * maxEmptyClaims {
		require.Less(t, c.asked("refund", 0, engine.ClaimResult{}), maxEmptyClaims*wakeSpread)
	}
	drawn := make(map[time.Duration]bool)
	for range 100 {
		wait := c.of("refund").raceDelay()
		require.Less(t, wait, maxEmptyClaims*wakeSpread)
		drawn[wait] = true
	}
	require.Greater(t, len(drawn), 50)
	require.Zero(t, c.asked("refund", 1, engine.ClaimResult{}))
	require.Zero(t, c.of("refund").raceDelay())
}
