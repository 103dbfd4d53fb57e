package queueloss

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

type silentQueue struct {
	processlog.Queue
	silent atomic.Bool
	asked  chan struct{}
}

func (q *silentQueue) Enqueue(ctx context.Context, items []processlog.QueueEntry, rules processlog.EnqueueRules) (newHeads, lost []string, err error) {
	if q.silent.CompareAndSwap(true, false) {
		close(q.asked)
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	return q.Queue.Enqueue(ctx, items, rules)
}

func TestReconcilerOutlivesAQueueThatGoesSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		queue := &silentQueue{Queue: compensatortest.NewMemoryQueue().Client(), asked: make(chan struct{})}
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, Queue: queue, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		var runs atomic.Int64
		_, err = compensator.Handle(t.Context(), c, "quiet", func(context.Context, *compensator.Entry, harness.Order) error {
			runs.Add(1)
			return nil
		}, nil)
		require.NoError(t, err)
		stop := compensatortest.Run(t, c)
		unqueued := func(delay time.Duration) {
			tx, err := store.BeginTx(t.Context())
			require.NoError(t, err)
			_, err = c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "quiet", Content: []byte(`{}`), Options: compensator.Options{Delay: delay}})
			require.NoError(t, err)
			require.NoError(t, tx.Commit()) // Commit without calling Receipt.Committed.
		}
		time.Sleep(time.Minute)
		queue.silent.Store(true)
		unqueued(time.Minute)
		<-queue.asked
		unqueued(0)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		assert.EqualValues(t, 2, runs.Load())
		stop()
		require.NoError(t, c.Close())
	})
}
