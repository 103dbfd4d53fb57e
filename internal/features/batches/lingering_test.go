package batches

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Failure: F107
func TestAsManyAsABatchTakesAreLookedAtAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lingerState{wait: 20 * time.Second, batchSize: 3}
		begins, _ := l.beginLook(time.Now())
		require.True(t, begins, "the first is looked at: there may be more")
		l.endLook()
		require.False(t, l.EntryDue())
		begins, next := l.beginLook(time.Now())
		require.False(t, begins)
		require.Equal(t, lookInterval(20*time.Second), time.Until(next))
		require.False(t, l.EntryDue())
		require.True(t, l.EntryDue())
		begins, _ = l.beginLook(time.Now())
		require.True(t, begins, "three were heard of")
	})
}

// After a claim of a full batch, the entries that are left may be too few for another batch. So the next look must not
// be put off.
func TestClaimOfAFullBatchIsFollowedByALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lingerState{wait: 20 * time.Second, batchSize: 3}
		l.endLook()
		begins, _ := l.beginLook(time.Now())
		require.False(t, begins)
		l.ClaimFull()
		begins, _ = l.beginLook(time.Now())
		require.True(t, begins)
	})
}
