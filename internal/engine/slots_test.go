package engine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSlotsGiveNoMoreThanTheyHave(t *testing.T) {
	s := &slots{size: 3, reservation: time.Second}
	require.Equal(t, 2, s.take(2))
	require.Equal(t, 1, s.take(5))
	require.Zero(t, s.take(1))
	require.Nil(t, s.reserve(1), "no credit on slots that run")
	s.release(3)
	require.Equal(t, 2, s.free(), "the next new one shall have one")
	require.Zero(t, s.take(0))
}

func TestOpenTransactionsHoldAtMostHalfTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slots{size: 10, reservation: time.Minute}
		first := s.reserve(4)
		require.Equal(t, 4, first.n)
		second := s.reserve(4)
		require.Equal(t, 1, second.n, "half of 10 are 5")
		require.Nil(t, s.reserve(1))
		require.Equal(t, 5, s.free())
		require.True(t, s.use(first, 0))
		require.Equal(t, 4, s.reserve(9).n)
	})
	require.Equal(t, 1, (&slots{size: 1, reservation: time.Minute}).reserve(1).n, "one slot can be reserved, too")
}

func TestReservationOfATransactionThatStaysOpenLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slots{size: 4, reservation: time.Second}
		c := s.reserve(2)
		<-time.After(time.Second)
		<-time.After(freshShare)
		require.Equal(t, 4, s.take(4), "the slots are free for others")
		require.False(t, s.use(c, 2), "and the transaction learns that it has none")
		require.Zero(t, s.free())
		s.release(4)
		require.Equal(t, 4, s.free())
	})
}

func TestReservationIsUsedOnce(t *testing.T) {
	s := &slots{size: 4, reservation: time.Hour}
	c := s.reserve(2)
	require.True(t, s.use(c, 1), "one of two was inserted after all")
	require.False(t, s.use(c, 1))
	s.release(1)
	require.Zero(t, s.running)
	require.Zero(t, s.reserved)
}

// Failure: F67
func TestPartOfTheSlotsIsKeptForNewEntriesWhileSuchArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slots{size: 10, reservation: time.Minute}
		require.Equal(t, 10, s.take(20), "nothing is kept while nothing new arrives")
		s.release(10)
		s.use(s.reserve(1), 0)
		require.Equal(t, 8, s.take(20), "a fifth is kept")
		require.Equal(t, 1, s.reserve(1).n, "for this")
		require.Zero(t, s.take(1), "what is reserved and what is kept are the same slots")
		<-time.After(freshShare)
		require.Equal(t, 1, s.take(1), "not for ever")
	})
	small := &slots{size: 1, reservation: time.Minute}
	small.use(small.reserve(1), 0)
	require.Equal(t, 1, small.take(1), "a single slot is never kept from the backlog")
}

// The transaction before it was under way still, or its own end is not seen: it is a new entry all the same.
// Failure: F67
func TestNewEntryWithNothingReservedTakesWhatIsKeptForNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slots{size: 5, reservation: time.Minute}
		require.Equal(t, 5, s.take(5))
		require.Nil(t, s.reserve(1))
		s.release(1)
		require.Zero(t, s.take(1), "one has arrived, and goes before what has waited for long")
		require.True(t, s.takeFresh())
		require.False(t, s.takeFresh(), "a slot runs one")
		s.release(1)
		require.Equal(t, 1, s.reserve(1).n)
		require.False(t, s.takeFresh(), "nor what another transaction has reserved")
	})
}

// slotStep is one call, or a wait; n is how many, or how many milliseconds.
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
		synctest.Test(t, func(*testing.T) { wrong = runSlots(size, steps) }) // rapid's panic may not leave the bubble
		if wrong != "" {
			r.Fatal(wrong)
		}
	})
}

// runSlots says what is wrong after which step; empty: nothing.
func runSlots(size int, steps []slotStep) string {
	s := &slots{size: size, reservation: time.Second}
	var open []*reservation
	taken := 0
	for i, step := range steps {
		switch step.call {
		case "reserve":
			if c := s.reserve(step.n); c != nil {
				open = append(open, c)
			}
		case "take":
			taken += s.take(step.n)
		case "takeFresh":
			if s.takeFresh() {
				taken++
			}
		case "use":
			if len(open) > 0 {
				c := open[step.n%len(open)]
				keep := step.n % (c.n + 1)
				if s.use(c, keep) {
					taken += keep
				}
			}
		case "release":
			n := min(step.n, taken)
			s.release(n)
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
