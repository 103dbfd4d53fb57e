package order

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/internal/features/timingwheel"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

// silent is a queue whose claims get no answer while held is set.
type silent struct {
	processlog.Queue
	held    atomic.Bool
	waiting atomic.Int64
	answer  chan struct{}
}

func (q *silent) Claim(ctx context.Context, businessType string, limit int, lease time.Duration) (processlog.Leased, error) {
	if q.held.Load() {
		q.waiting.Add(1)
		<-q.answer
	}
	return q.Queue.Claim(ctx, businessType, limit, lease)
}

func TestNextOfAKeyRunsWhileClaimsSearch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, queue := memory.NewStore(), &silent{Queue: timingwheel.New(), answer: make(chan struct{})}
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, Queue: queue, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		seen := newWatch(t)
		orders := serial(t, c, seen, compensator.HandlerConfig[harness.Order]{Concurrency: 4}, func(context.Context, *compensator.Entry) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		record := func(entries ...compensator.NewEntry) {
			require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
				_, err := c.Record(ctx, tx, entries...)
				return err
			}))
		}
		record(batch(orders, 400, steps["counted"], "ann")...)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		answer := sync.OnceFunc(func() { queue.held.Store(false); close(queue.answer) })
		defer func() {
			answer()
			stop()
			require.NoError(t, <-ended)
			require.NoError(t, c.Close())
		}()
		time.Sleep(20 * time.Second) // no slot is kept for new entries any more
		require.NotContains(t, []int{0, 400}, len(seen.order("ann")), "the key moves on")
		queue.held.Store(true)
		for i := range 20 { // due one after the other, so that claims begin again and again
			record(orders.Entry(harness.Order{}, compensator.Options{UserID: fmt.Sprint("other", i), Delay: time.Duration(i+1) * 50 * time.Millisecond}))
		}
		time.Sleep(time.Minute)
		require.Positive(t, queue.waiting.Load())
		require.Len(t, seen.order("ann"), 400)
		require.Empty(t, seen.order("other0"), "its claim has no answer yet")
		answer()
		time.Sleep(time.Minute)
		for i := range 20 {
			require.Len(t, seen.order(fmt.Sprint("other", i)), 1)
		}
	})
}
