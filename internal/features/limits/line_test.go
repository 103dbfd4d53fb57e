package limits

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

func wanted(ids ...uint64) (want []processlog.Wanted) {
	for _, id := range ids {
		want = append(want, processlog.Wanted{ID: processlog.RowID(id)})
	}
	return want
}

// limitedOf returns a claim whose entries all wait for a key until in.
func limitedOf(key string, in time.Duration, ids ...uint64) *processlog.Claimed {
	found := &processlog.Claimed{Rooms: map[string]processlog.Room{key: {Permits: processlog.Unbounded, Next: in}}}
	for _, id := range ids {
		found.Limited = append(found.Limited, processlog.Limited{ID: processlog.RowID(id), Key: key, In: in})
	}
	return found
}

// Each waiting entry of a key has its own time, one interval after the entry before. Until then its offers cost no statement.
func TestEntriesOfAKeyWaitOneIntervalAfterEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, limit := newLine(), &processlog.StartLimit{Interval: 10 * time.Second, Burst: 1}
		now := time.Now()
		found := limitedOf("a", 4*time.Second, 1, 2, 3)
		require.Empty(t, l.claimed(found, limit, now))
		for i, in := range []time.Duration{4 * time.Second, 14 * time.Second, 24 * time.Second} {
			require.Equal(t, in, found.Limited[i].In)
		}
		rest, asleep := l.awake(wanted(1, 2, 3, 4), now)
		require.Equal(t, wanted(4), rest)
		require.Len(t, asleep, 3)
		waiting, free := l.report(now)
		require.Equal(t, []any{3, now.Add(4 * time.Second)}, []any{waiting, free})
		require.Equal(t, now.Add(4*time.Second), l.next())
		time.Sleep(14 * time.Second)
		rest, asleep = l.awake(wanted(1, 2, 3, 4), time.Now())
		require.Equal(t, wanted(1, 2, 4), rest)
		require.Len(t, asleep, 1)
	})
}

// Other processes may return starts, and people raise limits. So nobody waits for a whole day.
func TestEntryOfASlowKeyIsTriedAgainWithinAMinute(t *testing.T) {
	l, limit := newLine(), &processlog.StartLimit{Interval: 24 * time.Hour, Burst: 1}
	now := time.Now()
	found := limitedOf("a", 24*time.Hour, 1)
	l.claimed(found, limit, now)
	require.Equal(t, mostSleep, found.Limited[0].In)
	_, free := l.report(now)
	require.Equal(t, now.Add(24*time.Hour), free, "people are told when the rate allows the start")
}

// If a claim leaves starts of a key unused, the first entries that wait for this key are woken: as many as the starts
// and permits that are left allow. wakeAll wakes all others.
func TestStartsThatAreLeftWakeTheFirstEntriesOfTheirKey(t *testing.T) {
	l, limit := newLine(), &processlog.StartLimit{Interval: time.Minute, Burst: 2}
	now := time.Now()
	l.claimed(limitedOf("a", time.Minute, 5, 3, 7), limit, now)
	l.claimed(limitedOf("b", time.Minute, 2), limit, now)
	left := &processlog.Claimed{Rooms: map[string]processlog.Room{"a": {Starts: 2, Permits: 1}}}
	require.Equal(t, []processlog.ID{processlog.RowID(5)}, l.claimed(left, limit, now), "one permit is free")
	require.Equal(t, []processlog.ID{processlog.RowID(2), processlog.RowID(3), processlog.RowID(7)}, l.wakeAll())
	require.True(t, l.next().IsZero())
	require.Empty(t, l.wakeAll())
}

// An entry that another process has claimed leaves the line without a word.
func TestLineForgetsEntriesLongAfterTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, limit := newLine(), &processlog.StartLimit{Interval: time.Second, Burst: 1}
		l.claimed(limitedOf("a", time.Second, 1), limit, time.Now())
		time.Sleep(time.Second + forgetAfter)
		require.False(t, l.next().IsZero())
		time.Sleep(time.Millisecond)
		require.True(t, l.next().IsZero())
		waiting, _ := l.report(time.Now())
		require.Zero(t, waiting)
	})
}

// A process remembers a bounded number of waiting entries.
func TestLineIsBounded(t *testing.T) {
	l, limit := newLine(), &processlog.StartLimit{Interval: time.Hour, Burst: 1}
	var ids []uint64
	for id := range uint64(lookAhead + 10) {
		ids = append(ids, id+1)
	}
	l.claimed(limitedOf("a", time.Hour, ids...), limit, time.Now())
	require.Len(t, l.asleep, lookAhead)
}
