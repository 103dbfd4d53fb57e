package limits

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func newAdvances() *advances { return &advances{allowed: true, keys: make(map[string]*advance)} }

func TestStartsAreTakenInAdvanceForKeysThatStartOften(t *testing.T) {
	now := time.Now()
	after := func(leased int, pause time.Duration, left, burst int) int {
		as := newAdvances()
		as.note(unusedStart{key: "a", sentAt: now}, 0, leased)
		return as.wanted("a", left, burst, now.Add(pause))
	}
	require.Zero(t, newAdvances().wanted("a", 1000, 1000, now), "the key is new")
	require.Equal(t, 4, after(1, 0, 999, 1000))
	require.Equal(t, 4, after(1, advanceAim/4, 999, 1000))
	require.Equal(t, 2, after(1, advanceAim/2, 999, 1000), "at this pace two entries start before the starts are too old")
	require.Zero(t, after(1, advanceLife, 999, 1000))
	require.Equal(t, maxAdvance, after(1000, 0, 999, 1000))
	require.Equal(t, 2, after(10, 0, 7, 10))
	require.Zero(t, after(10, 0, 5, 10), "half of the burst remains")
	require.Zero(t, after(1, 0, 0, 1))
	slow := newAdvances()
	slow.note(unusedStart{key: "a", sentAt: now}, 0, 5)
	slow.slow = true
	require.Zero(t, slow.wanted("a", 999, 1000, now), "the last claim was slow, so the next may take a start that is too old by its end")
}

// The limit counts a start at the time of its grant. If entries used granted starts much later, more entries could
// start at once than the limit allows.
func TestStartTakenInAdvanceIsUsedOnceAndNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		as := newAdvances()
		as.note(unusedStart{key: "a", granted: 7, sentAt: time.Now()}, 3, 1)
		start, has := as.take("a", time.Now())
		require.True(t, has)
		require.EqualValues(t, 7, start.granted)
		_, has = as.take("b", time.Now())
		require.False(t, has)
		require.True(t, as.giveBack(start, time.Now()), "its entry was not leased")
		for range 3 {
			_, has = as.take("a", time.Now())
			require.True(t, has)
		}
		_, has = as.take("a", time.Now())
		require.False(t, has)
		require.True(t, as.giveBack(start, time.Now()))
		time.Sleep(500*time.Millisecond - 1)
		unused, next := as.dropOld(false, time.Now())
		require.Empty(t, unused)
		require.Equal(t, time.Now().Add(1), next)
		time.Sleep(time.Nanosecond)
		_, has = as.take("a", time.Now())
		require.False(t, has)
		require.False(t, as.giveBack(start, time.Now()))

		as = newAdvances()
		as.note(unusedStart{key: "a", granted: 9, sentAt: time.Now()}, 2, 1)
		time.Sleep(500 * time.Millisecond)
		unused, next = as.dropOld(false, time.Now())
		require.Len(t, unused, 2)
		require.EqualValues(t, 9, unused[0].granted)
		require.True(t, next.IsZero())
		require.Empty(t, as.keys)
	})
}

func TestStartsOfTwoClaimsAreUsedInOrder(t *testing.T) {
	now, as := time.Now(), newAdvances()
	as.note(unusedStart{key: "a", granted: 1, sentAt: now}, 1, 1)
	as.note(unusedStart{key: "a", granted: 2, sentAt: now.Add(advanceLife / 2)}, 1, 1)
	first, _ := as.take("a", now)
	require.EqualValues(t, 1, first.granted)
	require.True(t, as.giveBack(first, now))
	second, has := as.take("a", now.Add(advanceLife))
	require.True(t, has)
	require.EqualValues(t, 2, second.granted, "the first is too old")
}
