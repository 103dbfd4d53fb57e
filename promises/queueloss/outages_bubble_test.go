package queueloss

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
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

type switchedQueue struct {
	processlog.Queue
	down atomic.Bool
}

func (q *switchedQueue) err() error {
	if q.down.Load() {
		return errNoQueue
	}
	return nil
}

func (q *switchedQueue) Check(ctx context.Context, fingerprint string) error {
	if err := q.err(); err != nil {
		return err
	}
	return q.Queue.Check(ctx, fingerprint)
}

func (q *switchedQueue) Enqueue(ctx context.Context, items []processlog.QueueEntry, rules processlog.EnqueueRules) (heads, lost []string, err error) {
	if err := q.err(); err != nil {
		return nil, nil, err
	}
	return q.Queue.Enqueue(ctx, items, rules)
}

func (q *switchedQueue) Claim(ctx context.Context, businessType string, limit int, lease time.Duration) (processlog.Leased, error) {
	if err := q.err(); err != nil {
		return processlog.Leased{}, err
	}
	return q.Queue.Claim(ctx, businessType, limit, lease)
}

func (q *switchedQueue) Peek(ctx context.Context, types []string) ([]time.Duration, []string, error) {
	if err := q.err(); err != nil {
		return nil, nil, err
	}
	return q.Queue.Peek(ctx, types)
}

func (q *switchedQueue) Lead(ctx context.Context, period time.Duration) (bool, error) {
	if err := q.err(); err != nil {
		return false, err
	}
	return q.Queue.Lead(ctx, period)
}

type logText struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *logText) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logText) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

// Failure: F45
func TestOutageSoonAfterAnotherIsLoggedIfItLasts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		queue, lines := &switchedQueue{Queue: compensatortest.NewMemoryQueue().Client()}, new(logText)
		c, err := compensator.New(t.Context(), compensator.Config{Store: compensatortest.NewMemoryStore(), Queue: queue,
			ReconcileInterval: time.Second, Logger: slog.New(slog.NewTextHandler(lines, nil))})
		require.NoError(t, err)
		_, err = compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, harness.Order) error { return nil }, nil)
		require.NoError(t, err)
		stop := compensatortest.Run(t, c)
		const down, up = "the queue cannot be used", "the queue answers again"
		time.Sleep(time.Minute)
		queue.down.Store(true)
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, lines.count(down))
		queue.down.Store(false)
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, lines.count(up))

		queue.down.Store(true)
		time.Sleep(2 * time.Second)
		require.Error(t, c.Health(t.Context()).Queue)
		assert.Equal(t, 1, lines.count(down), "a short outage soon after another is not logged")
		time.Sleep(time.Hour)
		require.Error(t, c.Health(t.Context()).Queue)
		assert.Equal(t, 2, lines.count(down), "the queue is down for an hour")
		queue.down.Store(false)
		time.Sleep(time.Minute)
		require.NoError(t, c.Health(t.Context()).Queue)
		assert.Equal(t, 2, lines.count(up))
		stop()
		require.NoError(t, c.Close())
	})
}

func TestHealthInsideQueueUpSaysThatTheQueueAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		queue := &switchedQueue{Queue: compensatortest.NewMemoryQueue().Client()}
		var c *compensator.Compensator
		seen := make(chan error, 10)
		cfg := compensator.Config{Store: compensatortest.NewMemoryStore(), Queue: queue, Logger: slog.New(slog.DiscardHandler)}
		cfg.Observer.QueueUp = func() { seen <- c.Health(context.Background()).Queue }
		c, err := compensator.New(t.Context(), cfg)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		queue.down.Store(true)
		harness.RecordLater(t, c, time.Minute)
		synctest.Wait()
		require.Error(t, c.Health(t.Context()).Queue)
		time.Sleep(time.Minute)
		queue.down.Store(false)
		_ = c.Health(t.Context()) // This call finds that the queue answers.
		require.NoError(t, <-seen)
		require.NoError(t, c.Close())
	})
}
