package batches

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// Failure: F107
func TestAsManyAsABatchTakesAreLookedAtAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lingerState{wait: 20 * time.Second, batchSize: 3}
		requireLook(t, l, false)
		interval := lookInterval(20 * time.Second)
		require.Equal(t, interval, l.endLook(19*time.Second, nil))
		require.Equal(t, interval, l.entryDue(time.Now()))
		begins, wait := l.beginLook(time.Now(), false)
		require.False(t, begins)
		require.Equal(t, interval, wait)
		require.Equal(t, interval, l.entryDue(time.Now()))
		require.Zero(t, l.entryDue(time.Now()))
		requireLook(t, l, false)
	})
}

// After a claim of a full batch, the remaining entries may be too few for another batch.
func TestClaimOfAFullBatchIsFollowedByALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lingerState{wait: 20 * time.Second, batchSize: 3}
		l.endLook(0, nil)
		requireClaim(t, l)
		begins, wait := l.beginLook(time.Now(), false)
		require.False(t, begins)
		require.Positive(t, wait)
		requireLook(t, l, true)
	})
}

// Failure: F107
func TestWhatIsOverdueWaitsForOthersThatMuchLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lingerState{wait: 20 * time.Second, batchSize: 3}
		require.Equal(t, 50*time.Millisecond, l.endLook(50*time.Millisecond, nil), "no look comes between")
		require.Equal(t, 50*time.Millisecond, l.entryDue(time.Now()))
		<-time.After(50 * time.Millisecond)
		require.Zero(t, l.entryDue(time.Now()))
		requireClaim(t, l)
	})
}

// Failure: F107
func TestEachClaimNeedsALookOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lingerState{wait: 20 * time.Second, batchSize: 3}
		l.endLook(0, nil)
		requireClaim(t, l)
		<-time.After(time.Minute)
		requireLook(t, l, false)
	})
}

// A look is a read of the due entries, but it does not find compensations. So if a look finds no entry, a claim must
// still follow after BatchWait. This test checks that the claim comes.
func TestClaimFollowsWhereNoEntryWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lingerState{wait: 20 * time.Second, batchSize: 3}
		require.Equal(t, 20*time.Second, l.endLook(processlog.Never, nil), "no look comes between")
		require.Equal(t, lookInterval(20*time.Second), l.entryDue(time.Now()))
		<-time.After(15 * time.Second)
		requireLook(t, l, false)
		require.Equal(t, 5*time.Second, l.endLook(processlog.Never, nil))
		<-time.After(5 * time.Second)
		requireLook(t, l, false)
		require.Zero(t, l.endLook(processlog.Never, nil))
		requireClaim(t, l)
	})
}

// Failure: F107
func TestEntryAfterALongRestIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lingerState{wait: 20 * time.Second, batchSize: 3}
		l.endLook(processlog.Never, nil)
		<-time.After(time.Minute)
		require.Zero(t, l.entryDue(time.Now()))
		requireLook(t, l, false)
	})
}

func TestLookThatFailsPutsNoClaimOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lingerState{wait: 20 * time.Second, batchSize: 3}
		require.Equal(t, lookInterval(20*time.Second), l.endLook(time.Second, nil))
		<-time.After(900 * time.Millisecond)
		require.Equal(t, 100*time.Millisecond, l.endLook(processlog.Never, errors.New("deadlock")))
	})
}

func requireLook(t *testing.T, l *lingerState, full bool) {
	t.Helper()
	begins, _ := l.beginLook(time.Now(), full)
	require.True(t, begins)
}

func requireClaim(t *testing.T, l *lingerState) {
	t.Helper()
	begins, wait := l.beginLook(time.Now(), false)
	require.False(t, begins)
	require.Zero(t, wait)
}
