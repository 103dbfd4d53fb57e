package queueloss

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

type deadQueue struct{ processlog.Queue }

var errNoQueue = errors.New("the queue is gone")

func (deadQueue) Claim(context.Context, string, int, time.Duration) (processlog.Leased, error) {
	return processlog.Leased{}, errNoQueue
}

func (deadQueue) Peek(context.Context, []string) ([]time.Duration, []string, error) {
	return nil, nil, errNoQueue
}

// rivalledStore lets another process claim all due entries that this process has just read. The field faster says in how many reads
// this still happens.
type rivalledStore struct {
	processlog.Store
	faster atomic.Int64
}

func (s *rivalledStore) Due(ctx context.Context, businessType string, limit int) ([]processlog.ID, error) {
	due, err := s.Store.Due(ctx, businessType, limit)
	if err != nil || len(due) == 0 || s.faster.Add(-1) < 0 {
		return due, err
	}
	want := make([]processlog.Wanted, len(due))
	for i, id := range due {
		want[i].ID = id
	}
	_, err = s.Claim(ctx, want, processlog.NewToken(), 100*time.Hour, func(*processlog.Row) bool { return true })
	return due, err
}

// Failure: F45
func TestProcessThatOthersWereFasterThanLooksAgainSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &rivalledStore{Store: compensatortest.NewMemoryStore()}
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, Queue: deadQueue{compensatortest.NewMemoryQueue().Client()},
			PollInterval: 24 * time.Hour, ReconcileInterval: 24 * time.Hour, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		const slots, lost, left = 4, 3, 20
		var ran atomic.Int64
		_, err = compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, harness.Order) error {
			ran.Add(1)
			return nil
		}, &compensator.HandlerConfig[harness.Order]{Concurrency: slots})
		require.NoError(t, err)
		for range lost*slots + left {
			harness.RecordLater(t, c, time.Second)
		}
		time.Sleep(2 * time.Second) // By now all entries are due.
		store.faster.Store(lost)
		stop := compensatortest.Run(t, c)
		time.Sleep(2 * time.Second) // This is shorter than any interval.
		stop()
		require.EqualValues(t, left, ran.Load())
		require.NoError(t, c.Close())
	})
}
