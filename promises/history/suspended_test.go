package history

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/processlog"
)

// After an hour of suspension, the database's clock seems to jump by an hour.
// Failure: F21
func TestPurgeWhileTheMachineWasSuspendedIsNoLoss(t *testing.T) {
	t.Parallel()
	inForgetfulBubble(t, compensator.Config{}, asItIs, func(t *testing.T, f *forgetful) {
		f.recordAndWait(0)
		f.store.ShiftClock(time.Hour + time.Minute)
		n, err := f.store.Purge(t.Context(), "", compensator.Succeeded, time.Hour, 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		f.requireGoingOn()

		before := f.store.Snapshot()
		f.recordAndWait(0)
		f.store.Restore(before)
		f.requireReported("what was seen since is")
	})
}

// clockless is a log without the table that keeps the database's clock.
type clockless struct{ processlog.Store }

func (clockless) Marks(context.Context, []string) (time.Time, map[string]time.Time, error) {
	return time.Time{}, nil, &compensator.FieldError{Field: "table", Reason: "does not exist"}
}

// Failure: F21
func TestLossShowsInALogOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	wrap := func(store *compensatortest.MemoryStore) processlog.Store { return clockless{store} }
	inForgetfulBubble(t, compensator.Config{}, wrap, func(t *testing.T, f *forgetful) {
		before := f.store.Snapshot()
		f.recordAndWait(0)
		f.store.Restore(before)
		f.requireReported("it was not purged")
	})
}
