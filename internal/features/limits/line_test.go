package limits

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

func newWanted(ids ...uint64) (wanted []processlog.Wanted) {
	for _, id := range ids {
		wanted = append(wanted, processlog.Wanted{ID: processlog.RowID(id)})
	}
	return wanted
}

func limitedIDs(key string, wait time.Duration, ids ...uint64) *processlog.Claimed {
	claim := &processlog.Claimed{Rooms: map[string]processlog.Room{key: {Permits: processlog.Unbounded, Next: wait}}}
	for _, id := range ids {
		claim.Limited = append(claim.Limited, processlog.Limited{ID: processlog.RowID(id), Key: key, In: wait})
	}
	return claim
}

func TestEntriesOfAKeyWaitOneIntervalAfterEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, limit := newLine(), &processlog.StartLimit{Interval: 10 * time.Second, Burst: 1}
		now := time.Now()
		claim := limitedIDs("a", 4*time.Second, 1, 2, 3)
		require.Empty(t, l.noteClaim(claim, limit, now))
		for i, in := range []time.Duration{4 * time.Second, 14 * time.Second, 24 * time.Second} {
			require.Equal(t, in, claim.Limited[i].In)
		}
		awake, sleeping := l.splitSleeping(newWanted(1, 2, 3, 4), now)
		require.Equal(t, newWanted(4), awake)
		require.Len(t, sleeping, 3)
		waiting, free := l.reportWaiting(now)
		require.Equal(t, []any{3, now.Add(4 * time.Second)}, []any{waiting, free})
		require.Equal(t, now.Add(4*time.Second), l.nextClaimAt())
		time.Sleep(14 * time.Second)
		awake, sleeping = l.splitSleeping(newWanted(1, 2, 3, 4), time.Now())
		require.Equal(t, newWanted(1, 2, 4), awake)
		require.Len(t, sleeping, 1)
	})
}

func TestEntryThatTwoClaimsHaveFoundHasOneTime(t *testing.T) {
	l, limit := newLine(), &processlog.StartLimit{Interval: 10 * time.Second, Burst: 1}
	now := time.Now()
	for range 2 {
		claim := limitedIDs("a", 4*time.Second, 1, 2)
		require.Empty(t, l.noteClaim(claim, limit, now))
		require.Equal(t, []time.Duration{4 * time.Second, 14 * time.Second}, []time.Duration{claim.Limited[0].In, claim.Limited[1].In})
	}
	require.Equal(t, []processlog.ID{processlog.RowID(1), processlog.RowID(2)}, l.wake("a", 5))
}

// Other processes may return starts, and people may raise the limit.
func TestEntryOfASlowKeyIsTriedAgainWithinAMinute(t *testing.T) {
	l, limit := newLine(), &processlog.StartLimit{Interval: 24 * time.Hour, Burst: 1}
	now := time.Now()
	claim := limitedIDs("a", 24*time.Hour, 1)
	l.noteClaim(claim, limit, now)
	require.Equal(t, maxSleep, claim.Limited[0].In)
	_, free := l.reportWaiting(now)
	require.Equal(t, now.Add(24*time.Hour), free, "people are told when the rate allows the start")
}

func TestStartsThatAreLeftWakeTheFirstEntriesOfTheirKey(t *testing.T) {
	l, limit := newLine(), &processlog.StartLimit{Interval: time.Minute, Burst: 2}
	now := time.Now()
	l.noteClaim(limitedIDs("a", time.Minute, 5, 3, 7), limit, now)
	l.noteClaim(limitedIDs("b", time.Minute, 2), limit, now)
	left := &processlog.Claimed{Rooms: map[string]processlog.Room{"a": {Starts: 2, Permits: 1}}}
	require.Equal(t, []processlog.ID{processlog.RowID(5)}, l.noteClaim(left, limit, now), "one permit is free")
	require.Equal(t, []processlog.ID{processlog.RowID(2), processlog.RowID(3), processlog.RowID(7)}, l.wakeAll())
	require.True(t, l.nextClaimAt().IsZero())
	require.Empty(t, l.wakeAll())
}

// If another process claims a waiting entry, this process gets no message. So the line forgets an entry some time after
// the time at which the entry should have been claimed.
func TestLineForgetsEntriesLongAfterTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, limit := newLine(), &processlog.StartLimit{Interval: time.Second, Burst: 1}
		l.noteClaim(limitedIDs("a", time.Second, 1), limit, time.Now())
		time.Sleep(time.Second + sleeperLife)
		require.False(t, l.nextClaimAt().IsZero())
		time.Sleep(time.Millisecond)
		require.True(t, l.nextClaimAt().IsZero())
		waiting, _ := l.reportWaiting(time.Now())
		require.Zero(t, waiting)
	})
}

func TestLineIsBounded(t *testing.T) {
	l, limit := newLine(), &processlog.StartLimit{Interval: time.Hour, Burst: 1}
	var ids []uint64
	for id := range uint64(maxSleepers + 10) {
		ids = append(ids, id+1)
	}
	l.noteClaim(limitedIDs("a", time.Hour, ids...), limit, time.Now())
	require.Len(t, l.sleepers, maxSleepers)
}
