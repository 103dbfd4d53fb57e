package leases

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
)

// A handler that ignores its context is running an entry when a person requeues the entry.
// Failure: F57
func TestRequeuedEntryKeepsItsLeaseBesideTheAttemptItOvertook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, Lease: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		var fresh atomic.Int64
		both := make(chan struct{})
		_, err = compensator.Handle(t.Context(), c, "quiet", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
			switch {
			case e.ProcessCount == 0 && e.Epoch == 0:
				return errors.New("again") // Return an error, because only a failed entry can be requeued.
			case e.Epoch == 0:
				<-both
				return nil
			}
			fresh.Add(1)
			select {
			case <-both:
				return nil
			case <-ctx.Done():
				assert.Fail(t, "the new attempt is interrupted", "%v", context.Cause(ctx))
				return ctx.Err()
			}
		}, &compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(time.Second), Timeout: time.Minute})
		require.NoError(t, err)
		stop := compensatortest.Run(t, c)
		id := harness.RecordIn(t, c, store, compensator.NewEntry{BusinessType: "quiet", Content: []byte(`{}`)}).ID()
		time.Sleep(5 * time.Second)
		require.NoError(t, admin.Of(c).Requeue(t.Context(), id, admin.RequeueOptions{AuditInfo: admin.AuditInfo{Actor: "somebody", Reason: "it hangs"}}))
		time.Sleep(20 * time.Second) // 20 s are several leases.
		synctest.Wait()
		assert.EqualValues(t, 1, fresh.Load())
		close(both)
		synctest.Wait()
		stop()
		require.Equal(t, compensator.Succeeded, store.Rows()[0].State)
		require.NoError(t, c.Close())
	})
}

// The queue notifies processes only if it had no due entry before, so the second entry notifies none.
// Failure: F56
func TestEntryBehindAnEndedLeaseOfTheQueueRunsOnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, queue := compensatortest.NewMemoryStore(), compensatortest.NewMemoryQueue()
		open := func() *compensator.Compensator {
			c, err := compensator.New(t.Context(), compensator.Config{
				Store: store, Queue: queue.Client(), Lease: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			return c
		}
		c, recorder := open(), open()
		late := new(harness.Lateness)
		_, err := compensator.Handle(t.Context(), c, "quiet", func(ctx context.Context, e *compensator.Entry, o harness.Order) error {
			_ = late.Note(ctx, e, o)
			<-ctx.Done()
			return ctx.Err()
		}, &compensator.HandlerConfig[harness.Order]{Timeout: time.Minute})
		require.NoError(t, err)
		stop := compensatortest.Run(t, c)
		time.Sleep(10*time.Second + 100*time.Millisecond)
		harness.RecordDelayedIn(t, recorder, store, 1, 0).Committed()
		time.Sleep(2500 * time.Millisecond)
		harness.RecordDelayedIn(t, recorder, store, 1, 0).Committed()
		time.Sleep(10 * time.Second)
		late.RequireOnTime(t, 2)
		stop()
		require.NoError(t, recorder.Close())
		require.NoError(t, c.Close())
	})
}

func TestEntryRescheduledUnderItsAttemptRunsWhenThatLeaseHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		cfg := compensator.Config{Store: store, Queue: compensatortest.NewMemoryQueue().Client(), Lease: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)}
		c, err := compensator.New(t.Context(), cfg)
		require.NoError(t, err)
		began := make(chan time.Time, 2)
		_, err = compensator.Handle(t.Context(), c, "quiet", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
			began <- time.Now()
			if len(began) == 2 {
				return nil
			}
			assert.NoError(t, c.Reschedule(ctx, e.ID, 3*time.Second))
			return errors.New("too late to count")
		}, &compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
		require.NoError(t, err)
		stop := compensatortest.Run(t, c)
		harness.RecordIn(t, c, store, compensator.NewEntry{BusinessType: "quiet", Content: []byte(`{}`)})
		time.Sleep(time.Minute)
		stop()
		require.Equal(t, compensator.Succeeded, store.Rows()[0].State)
		first, second := <-began, <-began
		assert.InDelta(t, cfg.Lease, second.Sub(first), float64(100*time.Millisecond), "by the bubble's clock")
		require.NoError(t, c.Close())
	})
}
