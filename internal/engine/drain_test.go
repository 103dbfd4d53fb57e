package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/groupcommit"
)

func TestStopWhoseGracePeriodIsOverWaitsForNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := waitingOn(t, 0, Config{StopTimeout: 6 * time.Second})
		require.NoError(t, e.Start(t.Context(), true))
		var known groupcommit.Batcher[int]
		known.Max, known.Workers, known.Flush = 1, 1, func([]int) { time.Sleep(time.Hour) }
		e.Await(WaitAtDrainEnd, &known)
		var told groupcommit.Batcher[int]
		told.Max, told.Workers, told.Flush = 1, 1, func([]int) { time.Sleep(time.Hour) }
		e.Await(WaitAtDrainEnd, &told)
		known.Add(1)
		told.Add(1)
		asked := time.Now()
		require.NoError(t, e.Drain())
		require.Equal(t, e.StopTimeout/3, time.Since(asked))
		<-known.Done()
		<-told.Done()
	})
}

// If both cases of a select are ready, Go takes one of them at random. So the test repeats the wait many times.
func TestStopWhoseGracePeriodIsOverSucceedsIfNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 64 {
			require.True(t, awaitBatchers(time.Now(), new(groupcommit.Batcher[int])))
		}
	})
}

// quietAtTheDeadline is a batcher whose channel Done never reports the end of its work. So a wait for this batcher
// lasts until its deadline. Quiet then reports that no work is left, so the wait succeeds.
type quietAtTheDeadline struct{}

func (quietAtTheDeadline) Done() <-chan struct{} { return nil }
func (quietAtTheDeadline) Quiet() bool           { return true }

func TestStopWhoseWaitSucceedsAtTheDeadlineWaitsForNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := waitingOn(t, 0, Config{StopTimeout: 6 * time.Second})
		require.NoError(t, e.Start(t.Context(), true))
		e.Await(WaitForClaims, quietAtTheDeadline{})
		var unanswered groupcommit.Batcher[int]
		unanswered.Max, unanswered.Workers, unanswered.Flush = 1, 1, func([]int) { time.Sleep(time.Hour) }
		e.Await(WaitAtDrainEnd, &unanswered)
		unanswered.Add(1)
		began := time.Now()
		require.NoError(t, e.Drain())
		require.Equal(t, 2*e.StopTimeout/3, time.Since(began), "a third for the claims before the handlers, and a third after them")
		<-unanswered.Done()
	})
}
