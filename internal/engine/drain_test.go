package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/groupcommit"
)

// A timer fires only once. If Stop waited for it again after it had fired, Stop would wait for the remaining work without a
// limit.
func TestStopWhoseGracePeriodIsOverWaitsForNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := waitingOn(t, 0, Config{StopTimeout: 6 * time.Second})
		require.NoError(t, e.Start(t.Context()))
		var known groupcommit.Batcher[int]
		known.Max, known.Workers, known.Flush = 1, 1, func([]int) { time.Sleep(time.Hour) }
		e.AwaitInDrain(&known)
		var told groupcommit.Batcher[int]
		told.Max, told.Workers, told.Flush = 1, 1, func([]int) { time.Sleep(time.Hour) }
		e.AwaitInDrain(&told)
		known.Add(1)
		told.Add(1)
		asked := time.Now()
		require.NoError(t, e.Drain())
		require.Equal(t, e.StopTimeout/3, time.Since(asked))
		<-known.Done()
		<-told.Done()
	})
}

// A stop waits several times with one timer. A wait that begins after the timer has fired must still see that nothing is
// left to wait for. A select with two ready cases takes either of them at random. So the test waits many times.
func TestStopWhoseGracePeriodIsOverSucceedsIfNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 64 {
			grace := time.NewTimer(0)
			synctest.Wait()
			require.True(t, awaitBatchers(grace, new(groupcommit.Batcher[int])))
		}
	})
}
