package claiming

import (
	"context"
	"fmt"
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
	"github.com/compensator-go/compensator/processlog"
)

// A Peek for up to 1,000 types counts as one call.
type countedQueue struct {
	processlog.Queue
	calls *atomic.Int64
}

func (q countedQueue) Claim(ctx context.Context, businessType string, limit int, lease time.Duration) (processlog.Leased, error) {
	q.calls.Add(1)
	return q.Queue.Claim(ctx, businessType, limit, lease)
}

func (q countedQueue) Peek(ctx context.Context, types []string) (waits []time.Duration, lost []string, err error) {
	q.calls.Add(1)
	return q.Queue.Peek(ctx, types)
}

func (q countedQueue) Rebuild(ctx context.Context, types []string, token processlog.Token, period time.Duration) ([]string, error) {
	q.calls.Add(1)
	return q.Queue.Rebuild(ctx, types, token, period)
}

func (q countedQueue) Rebuilt(ctx context.Context, types []string, token processlog.Token) ([]string, error) {
	q.calls.Add(1)
	return q.Queue.Rebuilt(ctx, types, token)
}

func (q countedQueue) Lead(ctx context.Context, period time.Duration) (bool, error) {
	q.calls.Add(1)
	return q.Queue.Lead(ctx, period)
}

func (q countedQueue) Check(ctx context.Context, fingerprint string) error {
	q.calls.Add(1)
	return q.Queue.Check(ctx, fingerprint)
}

func (q countedQueue) Enqueue(ctx context.Context, items []processlog.QueueEntry, rules processlog.EnqueueRules) (newHeads, lost []string, err error) {
	q.calls.Add(1)
	return q.Queue.Enqueue(ctx, items, rules)
}

func (q countedQueue) Settle(ctx context.Context, businessType string, items []processlog.QueueOutcome) error {
	q.calls.Add(1)
	return q.Queue.Settle(ctx, businessType, items)
}

func (q countedQueue) Notify(ctx context.Context, types []string) error {
	q.calls.Add(1)
	return q.Queue.Notify(ctx, types)
}

type countedStore struct {
	processlog.Store
	calls *atomic.Int64
}

func (s countedStore) Heads(ctx context.Context) ([]processlog.Head, error) {
	s.calls.Add(1)
	return s.Store.Heads(ctx)
}

func (s countedStore) Scan(ctx context.Context, w processlog.Window) ([]processlog.Scheduled, error) {
	s.calls.Add(1)
	return s.Store.Scan(ctx, w)
}

func (s countedStore) Due(ctx context.Context, businessType string, limit int) ([]compensator.EntryID, error) {
	s.calls.Add(1)
	return s.Store.Due(ctx, businessType, limit)
}

func (s countedStore) Fingerprint(ctx context.Context) (string, error) {
	s.calls.Add(1)
	return s.Store.Fingerprint(ctx)
}

func (s countedStore) Load(ctx context.Context, ids []compensator.EntryID) ([]processlog.Row, error) {
	s.calls.Add(1)
	return s.Store.Load(ctx, ids)
}

func (s countedStore) Versions(ctx context.Context, ids []compensator.EntryID) ([]processlog.Version, error) {
	s.calls.Add(1)
	return s.Store.Versions(ctx, ids)
}

func (s countedStore) Count(ctx context.Context, tx processlog.Tx, filter admin.CountFilter) ([]processlog.Count, error) {
	s.calls.Add(1)
	return s.Store.Count(ctx, tx, filter)
}

func (s countedStore) List(ctx context.Context, filter admin.Filter) (processlog.Page, error) {
	s.calls.Add(1)
	return s.Store.List(ctx, filter)
}

func (s countedStore) Claim(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	s.calls.Add(1)
	return s.Store.Claim(ctx, want, token, lease, accept)
}

func (s countedStore) Marks(ctx context.Context, types []string) (time.Time, map[string]time.Time, error) {
	s.calls.Add(1)
	return s.Store.Marks(ctx, types)
}

func (s countedStore) Purge(ctx context.Context, businessType string, state compensator.State, age time.Duration, limit int) (int, error) {
	s.calls.Add(1)
	return s.Store.Purge(ctx, businessType, state, age, limit)
}

func TestRestCostsLessThanAStatementAndTwoCallsASecond(t *testing.T) {
	t.Parallel()
	for _, types := range []int{1, 1000} {
		for _, shared := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d types, queue %t", types, shared), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { rest(t, types, shared) })
			})
		}
	}
}

func rest(t *testing.T, types int, shared bool) {
	var statements, calls atomic.Int64
	cfg := compensator.Config{Store: countedStore{compensatortest.NewMemoryStore(), &statements}, Logger: slog.New(slog.DiscardHandler)}
	if shared {
		cfg.Queue = countedQueue{compensatortest.NewMemoryQueue().Client(), &calls}
	}
	c, err := compensator.New(t.Context(), cfg)
	require.NoError(t, err)
	for i := range types {
		_, err := compensator.Handle(t.Context(), c, fmt.Sprint("type ", i), func(context.Context, *compensator.Entry, harness.Order) error { return nil }, nil)
		require.NoError(t, err)
	}
	stop := compensatortest.Run(t, c)
	time.Sleep(time.Minute)
	statements.Store(0)
	calls.Store(0)
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	assert.Less(t, statements.Load(), int64(600))
	assert.Less(t, calls.Load(), int64(2*600))
	t.Logf("ten minutes: %d statements, %d calls of the queue", statements.Load(), calls.Load())
	stop()
	require.NoError(t, c.Close())
}
