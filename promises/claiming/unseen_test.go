package claiming

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

// Failure: F22
func TestQueueMemberOfAnUncommittedEntryCostsNothing(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	cfg.DB = w.Open(harness.PlainPool(w.DSN))
	c := w.New(cfg)
	orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	dueKey := w.DueKey("close_order")
	invent := func(id uint64) {
		require.NoError(t, w.Redis.ZAdd(t.Context(), dueKey, redis.Z{Score: 1, Member: fmt.Sprint(id)}).Err())
		w.RecordDelayed(c, 10*time.Millisecond) // This entry wakes the scanner.
		w.Eventually(func() bool {
			return errors.Is(w.Redis.ZScore(t.Context(), dueKey, fmt.Sprint(id)).Err(), redis.Nil)
		}, "entry %d is looked for and leaves the queue", id)
	}
	invent(1_000_000) // No row has these ids, not even a locked row.
	tx := w.Begin(cfg.DB)
	receipt, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
	require.NoError(t, err)
	invent(receipt.ID().Row())
	require.NoError(t, tx.Commit()) // Nothing reports the commit, so the reconciler must find the entry.
	w.WaitState(receipt.ID(), compensator.Succeeded)
	assert.Equal(t, 1, ran.Of(receipt.ID()))
	assert.Equal(t, 1, w.Count("common_process_log WHERE id=? AND version=2 AND process_count=0", receipt.ID().Row()))
}

// laggingStore answers Load like a replica that lacks the newest rows.
type laggingStore struct{ processlog.Store }

func (laggingStore) Load(context.Context, []compensator.EntryID) ([]processlog.Row, error) {
	return nil, nil
}

// Failure: F22
func TestEntryRunsAlthoughPlainReadsDoNotShowItYet(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	store, err := compensator.OpenStore(t.Context(), w.DB, compensator.DefaultTable)
	require.NoError(t, err)
	cfg := w.QuickConfig()
	cfg.DB, cfg.Store, cfg.Lease = nil, laggingStore{store}, time.Second
	c := w.New(cfg)
	orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	for i := range 10 {
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := orders.Record(ctx, tx, harness.Order{Number: i}, compensator.Options{Delay: time.Duration(i%2) * 50 * time.Millisecond})
			return err
		}))
	}
	w.WaitAllEnded()
	assert.Equal(t, 10, ran.Total())
	assert.Equal(t, 10, w.Count("common_process_log WHERE state=1"))
}
