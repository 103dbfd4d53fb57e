package admin

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

// sentStore counts the statements that an SQL store would send for the calls of a process at rest.
type sentStore struct {
	*compensatortest.MemoryStore
	sent, backlogs atomic.Int64
}

func (s *sentStore) Heads(ctx context.Context) ([]processlog.Head, error) {
	s.sent.Add(1)
	return s.MemoryStore.Heads(ctx)
}

func (s *sentStore) Settings(ctx context.Context) ([]processlog.Setting, error) {
	s.sent.Add(1)
	return s.MemoryStore.Settings(ctx)
}

func (s *sentStore) Marks(ctx context.Context, names []string) (time.Time, map[string]time.Time, error) {
	s.sent.Add(1)
	return s.MemoryStore.Marks(ctx, names)
}

func (s *sentStore) MoveMark(ctx context.Context, tx processlog.Tx, name string, from, to time.Time) (bool, error) {
	s.sent.Add(1)
	if tx != nil {
		s.sent.Add(4) // isolation level, BEGIN, a locking read and COMMIT
	}
	return s.MemoryStore.MoveMark(ctx, tx, name, from, to)
}

func (s *sentStore) WriteInstance(ctx context.Context, i processlog.Instance, age time.Duration, ended bool) error {
	s.sent.Add(1)
	return s.MemoryStore.WriteInstance(ctx, i, age, ended)
}

func (s *sentStore) ForgetInstances(ctx context.Context, age time.Duration) error {
	s.sent.Add(1)
	return s.MemoryStore.ForgetInstances(ctx, age)
}

func (s *sentStore) Count(ctx context.Context, tx processlog.Tx, filter processlog.CountFilter) ([]processlog.Count, error) {
	s.sent.Add(1)
	return s.MemoryStore.Count(ctx, tx, filter)
}

func (s *sentStore) CountBacklog(ctx context.Context, ranges []processlog.BacklogRange, limit int) ([]processlog.BacklogSlice, error) {
	s.sent.Add(1)
	return s.MemoryStore.CountBacklog(ctx, ranges, limit)
}

func (s *sentStore) WriteBacklog(ctx context.Context, slot time.Time, backlog []processlog.Backlog) error {
	s.backlogs.Add(1)
	s.sent.Add(2)
	return s.MemoryStore.WriteBacklog(ctx, slot, backlog)
}

func (s *sentStore) FoldStats(ctx context.Context, fold processlog.StatFold, age time.Duration, limit int) (int, error) {
	s.sent.Add(3) // BEGIN, a read and COMMIT
	return s.MemoryStore.FoldStats(ctx, fold, age, limit)
}

func (s *sentStore) ForgetStats(ctx context.Context, age time.Duration) error {
	s.sent.Add(2)
	return s.MemoryStore.ForgetStats(ctx, age)
}

func (s *sentStore) CloseCases(ctx context.Context, limit int) (int, error) {
	s.sent.Add(1)
	return s.MemoryStore.CloseCases(ctx, limit)
}

func (s *sentStore) DeadWithoutCase(ctx context.Context, age time.Duration, limit int) ([]processlog.Row, error) {
	s.sent.Add(2)
	return s.MemoryStore.DeadWithoutCase(ctx, age, limit)
}

func (s *sentStore) ForgetCases(ctx context.Context, age time.Duration, limit int) (int, error) {
	s.sent.Add(1)
	return s.MemoryStore.ForgetCases(ctx, age, limit)
}

func TestProcessAtRestSendsAStatementInFourSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &sentStore{MemoryStore: compensatortest.NewMemoryStore()}
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, Queue: compensatortest.NewMemoryQueue().Client(), Logger: slog.New(slog.DiscardHandler),
			Operations: &compensator.Operations{Attempts: true, Statistics: true, Instances: true}})
		require.NoError(t, err)
		refunds, err := compensator.Handle(t.Context(), c, "refund", func(context.Context, *compensator.Entry, harness.Order) error { return nil }, nil)
		require.NoError(t, err)
		record := func(delay time.Duration) {
			require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
				_, err := refunds.Record(ctx, tx, harness.Order{}, compensator.Options{Delay: delay})
				return err
			}))
		}
		record(1000 * time.Hour)
		stop := compensatortest.Run(t, c)
		time.Sleep(2*time.Hour + time.Minute)
		sent, backlogs := store.sent.Load(), store.backlogs.Load()
		const hours = 6
		time.Sleep(hours * time.Hour)
		sent, backlogs = store.sent.Load()-sent, store.backlogs.Load()-backlogs
		assert.LessOrEqual(t, float64(sent)/(hours*3600), 0.25, "statements a second")
		assert.Equal(t, int64(hours*15), backlogs, "every four minutes")

		backlogs = store.backlogs.Load()
		for range 6 * 60 {
			record(0)
			time.Sleep(10 * time.Second)
		}
		assert.GreaterOrEqual(t, store.backlogs.Load()-backlogs, int64(58), "every minute")
		stop()
		require.NoError(t, c.Close())
	})
}
