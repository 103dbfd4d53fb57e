package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A process that could not read what people have paused must not run it; and one that has read it keeps to that.
// Failure: F124
func TestNothingRunsBeforeItIsKnownWhatIsPaused(t *testing.T) {
	var paused map[string]bool
	err := errors.New("gone away")
	e, typ := waitingOn(t, 0, Config{Paused: func(context.Context) (map[string]bool, error) { return paused, err }})
	look := func(answer map[string]bool, fault error) bool {
		paused, err = answer, fault
		e.LookForPauses(t.Context())
		return e.claimSchedule.canClaim(typ)
	}
	gone := err
	require.False(t, look(nil, gone), "it may be paused")
	require.True(t, look(nil, nil))
	require.True(t, woken(e.claimSchedule), "what is due waits no longer")
	require.True(t, look(nil, gone), "as it was")
	require.False(t, look(map[string]bool{typ.Name: true}, nil))
	require.False(t, look(nil, gone), "as it was")
}

// Failure: F124
func TestWhatIsPausedIsAskedForAgainSoonUntilItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		e, typ := waitingOn(t, 0, Config{PollInterval: time.Second, ReconcileInterval: time.Hour,
			Paused: func(context.Context) (map[string]bool, error) {
				if asked++; asked < 3 {
					return nil, errors.New("gone away")
				}
				return nil, nil
			}})
		ctx, stop := context.WithCancel(t.Context())
		e.LookForPauses(ctx)
		go e.KeepPauses(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 3, asked)
		require.True(t, e.claimSchedule.canClaim(typ))
		stop()
		synctest.Wait()
		e.Close()
	})
}
