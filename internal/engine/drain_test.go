package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A timer fires once: waited for again after its end, what is left would be waited for without a bound.
func TestStopWhosePatienceIsOverWaitsForNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := waitingOn(t, 0, Config{StopTimeout: 6 * time.Second})
		require.NoError(t, e.Start(t.Context()))
		e.turns.rested.Flush = func([]restedLine) { time.Sleep(time.Hour) }
		e.announcer.acks.Flush = func([]ack) { time.Sleep(time.Hour) }
		e.turns.rested.Add(restedLine{"close_order", "ann"})
		e.announcer.acks.Add(ack{businessType: "close_order"})
		asked := time.Now()
		require.NoError(t, e.Drain())
		require.Equal(t, e.StopTimeout/3, time.Since(asked))
		<-e.turns.rested.Done()
		<-e.announcer.acks.Done()
	})
}
