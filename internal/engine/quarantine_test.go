package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// Failure: F61
func TestSuspectsRunAmongFewAndThoseOfTwoLostLeasesAlone(t *testing.T) {
	large, small := &Type{Concurrency: 50}, &Type{Concurrency: 1}
	var q quarantine
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

// A healthy process that was killed has left all that it held: it is worked off in a few rounds, of few entries first.
// Failure: F61
func TestSuspectsOfABatchTypeAreLetInByMoreAndMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		typ := &Type{Concurrency: 4, BatchSize: 100, RunBatch: func(context.Context, []*processlog.Row) []error { return nil }}
		var q quarantine
		enter := func() (n int) {
			for q.enter(typ, 1) {
				n++
			}
			return n
		}
		leave := func(n int, ended bool) (room bool) {
			for range n {
				room = q.leave(typ, 1, ended)
			}
			return room
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
		time.Sleep(fewForget + 1)
		require.Equal(t, 20, enter(), "these are of another crash")
		require.True(t, leave(20, false))
		require.Equal(t, 20, enter(), "what has not run proves nothing")
	})
}

func TestSuspectThatIsToRunAloneGetsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		typ := &Type{Concurrency: 50}
		var q quarantine
		require.True(t, q.enter(typ, 1))
		require.False(t, q.enter(typ, 2))
		require.False(t, q.enter(typ, 1), "the next ones wait for it")
		q.leave(typ, 1, true)
		require.False(t, q.enter(typ, 1))
		require.True(t, q.enter(typ, 2))
		q.leave(typ, 2, true)
		require.True(t, q.enter(typ, 1))
		require.False(t, q.enter(typ, 2))
		<-time.After(aloneWait)
		require.True(t, q.enter(typ, 1), "but not for ever: it may run elsewhere by now")
	})
}

// A commit that came long after its Record finds the lease it was inserted with ended. Claimed on under its own token, the entry
// has lost nothing, and must not keep a place that nobody gives back.
// Failure: F61
func TestEntryClaimedOnAfterALateCommitTakesNoPlaceInQuarantine(t *testing.T) {
	typ := &Type{Name: "close_order", Concurrency: 50, Lease: time.Second}
	row := processlog.Row{ID: processlog.RowID(1), BusinessType: "close_order", DeliveryCount: 1, Token: processlog.Token{1}}
	h := newHoldings(newClaimSchedule(newTypes(time.Second)))
	own := picker{t: typ, holdings: h, want: []processlog.Wanted{{ID: row.ID, Token: row.Token}}, room: 1}
	require.True(t, own.accept(&row))
	require.Zero(t, h.quarantine.total)
	others := picker{t: typ, holdings: h, want: []processlog.Wanted{{ID: row.ID}}, room: 1}
	require.True(t, others.accept(&row))
	require.Equal(t, 1, h.quarantine.total, "whoever recorded it has died")
	others.keepOnly(nil)
	require.Zero(t, h.quarantine.total, "it was not claimed after all")
	row.Token = processlog.Token{} // a row that nobody's Record has written
	require.True(t, (&picker{t: typ, holdings: h, want: []processlog.Wanted{{ID: row.ID}}, room: 1}).accept(&row))
	require.Equal(t, 1, h.quarantine.total)
}
