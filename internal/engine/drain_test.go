package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// A timer fires once: waited for again after its end, what is left would be waited for without a bound.
func TestStopWhoseGracePeriodIsOverWaitsForNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := waitingOn(t, 0, Config{StopTimeout: 6 * time.Second})
		require.NoError(t, e.Start(t.Context()))
		e.ordering.rested.Flush = func([]processlog.Position) { time.Sleep(time.Hour) }
		e.enqueuer.acks.Flush = func([]ack) { time.Sleep(time.Hour) }
		e.ordering.rested.Add(processlog.Position{BusinessType: "close_order", Key: "ann"})
		e.enqueuer.acks.Add(ack{businessType: "close_order"})
		asked := time.Now()
		require.NoError(t, e.Drain())
		require.Equal(t, e.StopTimeout/3, time.Since(asked))
		<-e.ordering.rested.Done()
		<-e.enqueuer.acks.Done()
	})
}
