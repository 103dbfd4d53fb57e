package slots

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/compensator-go/compensator/internal/engine"
)

func newSlots(size int, lapse time.Duration) *Slots {
	return &Slots{size: size, reservationTimeout: lapse, otherLimits: func() int { return engine.Unlimited }}
}

func TestSlotsGiveNoMoreThanTheyHave(t *testing.T) {
	s := newSlots(3, time.Second)
	require.Equal(t, 2, s.Take(2))
	require.Equal(t, 1, s.Take(5))
	require.Zero(t, s.Take(1))
	require.Nil(t, s.reserve(1), "no credit on slots that run")
	s.Release(3)
	require.Equal(t, 2, s.Available(), "the next new one shall have one")
	require.Zero(t, s.Take(0))
}

func TestOpenTransactionsHoldAtMostHalfTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(10, time.Minute)
		first := s.reserve(4)
		require.Equal(t, 4, first.n)
		second := s.reserve(4)
		require.Equal(t, 1, second.n, "half of 10 are 5")
		require.Nil(t, s.reserve(1))
		require.Equal(t, 5, s.Available())
		require.True(t, first.Use(0))
		require.Equal(t, 4, s.reserve(9).n)
	})
	require.Equal(t, 1, (newSlots(1, time.Minute)).reserve(1).n, "one slot can be reserved, too")
}

func TestReservationOfATransactionThatStaysOpenLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(4, time.Second)
		c := s.reserve(2)
		<-time.After(time.Second)
		<-time.After(recordedShare)
		require.Equal(t, 4, s.Take(4), "the slots are free for others")
		require.False(t, c.Use(2), "and the transaction learns that it has none")
		require.Zero(t, s.Available())
		s.Release(4)
		require.Equal(t, 4, s.Available())
	})
}

func TestReservationIsUsedOnce(t *testing.T) {
	s := newSlots(4, time.Hour)
	c := s.reserve(2)
	require.True(t, c.Use(1), "one of two was inserted after all")
	require.False(t, c.Use(1))
	s.Release(1)
	require.Zero(t, s.running)
	require.Zero(t, s.reserved)
}

// Failure: F67
func TestPartOfTheSlotsIsKeptForNewEntriesWhileSuchArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(10, time.Minute)
		require.Equal(t, 10, s.Take(20), "nothing is kept while nothing new arrives")
		s.Release(10)
		s.reserve(1).Use(0)
		require.Equal(t, 8, s.Take(20), "a fifth is kept")
		require.Equal(t, 1, s.reserve(1).n, "for this")
		require.Zero(t, s.Take(1), "what is reserved and what is kept are the same slots")
		<-time.After(recordedShare)
		require.Equal(t, 1, s.Take(1), "not for ever")
	})
	small := newSlots(1, time.Minute)
	small.reserve(1).Use(0)
	require.Equal(t, 1, small.Take(1), "a single slot is never kept from the backlog")
}

// Failure: F67
func TestNewEntryWithNothingReservedTakesWhatIsKeptForNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(5, time.Minute)
		require.Equal(t, 5, s.Take(5))
		require.Nil(t, s.reserve(1))
		s.Release(1)
		require.Zero(t, s.Take(1), "one has arrived, and goes before what has waited for long")
		require.True(t, s.TakeRecorded())
		require.False(t, s.TakeRecorded(), "a slot runs one")
		s.Release(1)
		require.Equal(t, 1, s.reserve(1).n)
		require.False(t, s.TakeRecorded(), "nor what another transaction has reserved")
	})
}

// n is the number of slots, or of milliseconds.
type slotStep struct {
	call string
	n    int
}

func TestSlotsNeverCountBeyondTheirSizeOrBelowZero(t *testing.T) {
	step := rapid.Custom(func(t *rapid.T) slotStep {
		return slotStep{rapid.SampledFrom([]string{"reserve", "take", "takeFresh", "use", "release", "wait"}).Draw(t, "call"), rapid.IntRange(0, 15).Draw(t, "n")}
	})
	rapid.Check(t, func(r *rapid.T) {
		size := rapid.IntRange(1, 12).Draw(r, "size")
		steps := rapid.SliceOf(step).Draw(r, "steps")
		var wrong string
		synctest.Test(t, func(*testing.T) { wrong = runSlots(size, steps) }) // rapid's panic must not leave the bubble.
		if wrong != "" {
			r.Fatal(wrong)
		}
	})
}

// The result names the first wrong step, or is "".
func runSlots(size int, steps []slotStep) string {
	s := newSlots(size, time.Second)
	var open []*reservation
	taken := 0
	for i, step := range steps {
		switch step.call {
		case "reserve":
			if c := s.reserve(step.n); c != nil {
				open = append(open, c)
			}
		case "take":
			taken += s.Take(step.n)
		case "takeFresh":
			if s.TakeRecorded() {
				taken++
			}
		case "use":
			if len(open) > 0 {
				c := open[step.n%len(open)]
				keep := step.n % (c.n + 1)
				if c.Use(keep) {
					taken += keep
				}
			}
		case "release":
			n := min(step.n, taken)
			s.Release(n)
			taken -= n
		case "wait":
			<-time.After(time.Duration(step.n) * 100 * time.Millisecond)
		}
		if s.running != taken || s.reserved < 0 || s.running+s.reserved > size {
			return fmt.Sprintf("after step %d, %v: %d running, want %d; %d reserved of %d", i, step, s.running, taken, s.reserved, size)
		}
	}
	return ""
}

func TestSlotsOfALimitedTypeAreForEntriesThatAreDue(t *testing.T) {
	s := newSlots(10, time.Hour)
	room := engine.Unlimited
	s.otherLimits = func() int { return room }
	early := s.Reserve(1)
	require.Equal(t, 2, s.Take(2))
	room = 0
	require.Zero(t, s.Take(5))
	require.Zero(t, s.Available())
	require.Nil(t, s.Reserve(1), "entries recorded now wait in the queue")
	require.False(t, s.TakeRecorded())
	require.True(t, early.Use(1), "an entry recorded before has its slot")
	room = 1
	require.Equal(t, 1, s.Available())
	require.Nil(t, s.Reserve(1), "the one call is for the entry that has waited longest")
	require.False(t, s.TakeRecorded())
	for range 7 {
		require.Equal(t, 1, s.Take(5), "a claim that brought none changes nothing")
	}
	require.Zero(t, s.Take(1), "no more slots than the type has")
	s.Release(10)
	room = engine.Unlimited
	require.NotNil(t, s.Reserve(1))
}
