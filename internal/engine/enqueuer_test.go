package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// attentive is a queue that keeps what it is told.
type attentive struct {
	processlog.Queue
	told []processlog.QueueEntry
}

func (q *attentive) Enqueue(_ context.Context, batch []processlog.QueueEntry, _ processlog.EnqueueRules) (heads, lost []string, err error) {
	q.told = append(q.told, batch...)
	return nil, nil, nil
}

// A process that stops, or only records, has nobody who looks whether the queue is back: what it has to tell finds out.
func TestCallThatFindsTheQueueBackTellsAllThatHasGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &attentive{}
		e := New(t.Context(), Config{Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }, Queue: q, Lease: time.Hour,
			PollInterval: time.Second, ReconcileInterval: 10 * time.Second, Horizon: time.Hour})
		tell := func(ids ...uint64) (all []processlog.QueueEntry) {
			for _, id := range ids {
				e.enqueuer.move("refund", processlog.RowID(id), 0)
				all = append(all, processlog.QueueEntry{BusinessType: "refund", ID: processlog.RowID(id)})
			}
			synctest.Wait()
			return all
		}
		e.enqueuer.health.saw(errors.New("no route"))
		tell(1, 2)
		require.Empty(t, q.told, "it has just failed")

		time.Sleep(2 * time.Second)
		require.False(t, e.enqueuer.health.up(), "whoever asks, and calls nothing, finds out nothing")
		want := tell(3, 4, 5)
		require.Equal(t, want, q.told)
		require.True(t, e.enqueuer.health.up())
		require.Equal(t, slices.Concat(want, tell(6)), q.told)
	})
}

// mute is a queue that answers nobody.
type mute struct {
	processlog.Queue
	asked []string
}

func (q *mute) Settle(ctx context.Context, businessType string, _ []processlog.QueueOutcome) error {
	q.asked = append(q.asked, businessType)
	<-ctx.Done()
	return context.Cause(ctx)
}

// A stop waits for what the queue is told: for one call, and not for one of each type.
func TestQueueThatDoesNotAnswerForOneTypeIsNotAskedForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &mute{}
		e, _ := waitingOn(t, 0, Config{Queue: q})
		e.enqueuer.acks.Add(ack{businessType: "refund"}, ack{businessType: "mail"}, ack{businessType: "close_order"})
		<-e.enqueuer.acks.Done()
		require.Equal(t, []string{"refund"}, q.asked)
		require.False(t, e.enqueuer.health.up())
	})
}
