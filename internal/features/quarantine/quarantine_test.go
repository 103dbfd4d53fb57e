package quarantine

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

type testQuarantine struct{ *Quarantine }

func (q *testQuarantine) enter(t *engine.Type, lostLeases int) bool {
	return lostLeases < engine.SuspectAfter || q.enterLocked(t, lostLeases)
}

func (q *testQuarantine) leave(t *engine.Type, lostLeases int, ended bool) bool {
	return q.leaveLocked(t, lostLeases, ended)
}

// Failure: F61
func TestPlaceIsGivenBackOnce(t *testing.T) {
	typ := &engine.Type{Concurrency: 1}
	q := New(engine.New(t.Context(), engine.Config{Log: slog.New(slog.DiscardHandler)}))
	defer q.e.Close()
	one, other := suspect{id: processlog.RowID(1)}, suspect{id: processlog.RowID(2)}
	require.True(t, q.accept(typ, one, 1))
	require.False(t, q.accept(typ, one, 1), "it has its place already")
	require.False(t, q.accept(typ, other, 1))
	q.release(typ, other, engine.OutcomeDecided)
	require.False(t, q.accept(typ, other, 1), "the other entry had no place")
	q.release(typ, one, engine.NotRun)
	q.release(typ, one, engine.OutcomeDecided)
	require.True(t, q.accept(typ, other, 1))
	require.False(t, q.accept(typ, one, 1))
}

// Failure: F61
func TestSuspectsRunAmongFewAndThoseOfTwoLostLeasesAlone(t *testing.T) {
	large, small := &engine.Type{Concurrency: 50}, &engine.Type{Concurrency: 1}
	q := &testQuarantine{Quarantine: New(nil)}
	for range 100 {
		require.True(t, q.enter(large, 0), "who has lost nothing is not held up")
	}
	for range 8 {
		require.True(t, q.enter(large, 1))
	}
	require.False(t, q.enter(large, 1), "no more than the root of the concurrency")
	require.True(t, q.enter(small, 1), "each type has places of its own")
	require.False(t, q.enter(small, 2), "not beside others")
	for range 8 {
		q.leave(large, 1, true)
	}
	q.leave(small, 1, true)
	require.True(t, q.enter(large, 2))
	require.False(t, q.enter(small, 2), "alone, of all types")
	require.False(t, q.enter(small, 1))
	q.leave(large, 2, true)
	require.True(t, q.enter(small, 1))
}

// Somebody has killed a healthy process, so all its entries are suspects.
// Failure: F61
func TestSuspectsOfABatchTypeAreLetInByMoreAndMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		typ := &engine.Type{Concurrency: 4}
		typ.AttachGrouping(engine.Grouping{Seats: 100, Start: func([]*engine.Attempt) {}})
		q := &testQuarantine{Quarantine: New(nil)}
		enter := func() (n int) {
			for q.enter(typ, 1) {
				n++
			}
			return n
		}
		leave := func(n int, ended bool) (hasRoom bool) {
			for range n {
				hasRoom = q.leave(typ, 1, ended)
			}
			return hasRoom
		}
		for _, round := range []int{20, 60, 180, 400, 400} {
			require.Equal(t, round, enter())
			require.False(t, leave(round/2-1, true))
			require.Zero(t, enter(), "one by one they would run in calls of one")
			require.True(t, leave(1, true))
			if round == 20 {
				require.Equal(t, round/2, enter(), "one that hangs does not keep out all others")
				leave(round/2, true)
			}
			require.True(t, leave(round-round/2, true))
		}
		time.Sleep(placesReset + 1)
		require.Equal(t, 20, enter(), "these are of another crash")
		require.True(t, leave(20, false))
		require.Equal(t, 20, enter(), "what has not run proves nothing")
	})
}

func TestSuspectThatIsToRunAloneGetsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		typ := &engine.Type{Concurrency: 50}
		q := &testQuarantine{Quarantine: New(nil)}
		require.True(t, q.enter(typ, 1))
		require.False(t, q.enter(typ, 2))
		require.False(t, q.enter(typ, 1), "the next ones wait for it")
		q.leave(typ, 1, true)
		require.False(t, q.enter(typ, 1))
		require.True(t, q.enter(typ, 2))
		q.leave(typ, 2, true)
		require.True(t, q.enter(typ, 1))
		require.False(t, q.enter(typ, 2))
		<-time.After(lonePause)
		require.True(t, q.enter(typ, 1), "but not for ever: it may run elsewhere by now")
	})
}

func TestHoldSaysWhyASuspectIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		typ, other := &engine.Type{Concurrency: 4}, &engine.Type{Concurrency: 4}
		q := New(engine.New(t.Context(), engine.Config{Log: slog.New(slog.DiscardHandler)}))
		defer q.e.Close()
		held := func(of *engine.Type, lostLeases, n int, since time.Duration) {
			t.Helper()
			hold := q.Hold(of, lostLeases)
			accepted := q.accept(of, suspect{id: processlog.RowID(99)}, lostLeases)
			if accepted {
				q.release(of, suspect{id: processlog.RowID(99)}, engine.NotClaimed)
			}
			require.Equal(t, hold == nil, accepted)
			if n > 0 {
				require.Equal(t, &processlog.ClaimHold{Reason: processlog.HeldBySuspects, N: n, LostLeases: lostLeases, For: since}, hold)
			}
			require.Equal(t, n > 0, hold != nil)
		}
		held(typ, 0, 0, 0)
		held(typ, 1, 0, 0)
		held(typ, 2, 0, 0)
		require.True(t, q.accept(typ, suspect{id: processlog.RowID(1)}, 1))
		time.Sleep(time.Second)
		require.True(t, q.accept(typ, suspect{id: processlog.RowID(2)}, 1))
		time.Sleep(time.Second)
		held(typ, 1, 2, time.Second)
		held(other, 1, 0, 0)
		held(other, 2, 2, 2*time.Second)
		held(other, 1, 2, 0)
		time.Sleep(lonePause)
		held(other, 1, 0, 0)
		q.release(typ, suspect{id: processlog.RowID(1)}, engine.OutcomeDecided)
		q.release(typ, suspect{id: processlog.RowID(2)}, engine.OutcomeDecided)
		require.True(t, q.accept(typ, suspect{id: processlog.RowID(3)}, 2))
		time.Sleep(time.Second)
		held(typ, 1, 1, time.Second)
		held(other, 2, 1, time.Second)
	})
}
