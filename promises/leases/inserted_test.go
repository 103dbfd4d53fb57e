package leases

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

// If the lease expired instead of being released, it would count as a crash.
// Failure: F59
func TestLeaseThatAnEntryIsInsertedWithIsGivenBackWhereItCannotBeReadBack(t *testing.T) {
	t.Parallel()
	rows := func(r faultproxy.Request) bool {
		return r.Runs() && strings.Contains(r.Text, "content") && strings.Contains(r.Text, "WHERE id IN (")
	}
	for name, c := range map[string]struct {
		match   faultproxy.Match
		entries int
	}{
		"read back":         {func(r faultproxy.Request) bool { return rows(r) && !strings.Contains(r.Text, "FOR UPDATE") }, 1},
		"several read back": {func(r faultproxy.Request) bool { return rows(r) && !strings.Contains(r.Text, "FOR UPDATE") }, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t).WithRedis()
			countDeliveries(w)
			proxy, db := w.OpenProxied(true)
			cfg := w.QuickConfig()
			cfg.DB, cfg.Lease = db, harness.Timeout // A test that waits for the end of this lease times out.
			shop := w.New(cfg)
			var ran harness.Calls
			orders, err := compensator.Handle(t.Context(), shop, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
				ran.Add(e.ID)
				return nil
			}, nil)
			require.NoError(t, err)
			w.Run(shop)
			w.WaitState(w.RecordThrough(db, orders, 1, compensator.Options{}), compensator.Succeeded) // By now Run has started.
			trap := proxy.Arm(faultproxy.Rule{Match: c.match, Fault: faultproxy.DropRequest, Nth: 1})
			tx := w.Begin(db)
			entries := make([]compensator.NewEntry, c.entries)
			for i := range entries {
				entries[i] = orders.Entry(harness.Order{Number: i}, compensator.Options{})
			}
			_, err = shop.Record(t.Context(), tx, entries...)
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			w.Eventually(func() bool { return trap.Fired() > 0 }, "the read-back fails")
			w.WaitAllEnded()
			require.Equal(t, 1+c.entries, w.CountEnded(compensator.Succeeded, 0))
			require.Zero(t, w.Count("deliveries WHERE n>1"), "no lease counts as lost")
			require.Equal(t, 1+c.entries, ran.Total())
		})
	}
}

// idless is a store that cannot return the ids of inserted rows, like MySQL after an INSERT of several rows.
type idless struct {
	processlog.Store
	fails atomic.Int64 // number of the next calls of the method IDs that fail
	asked atomic.Int64
}

func (s *idless) Insert(ctx context.Context, tx processlog.Tx, drafts []processlog.Draft, proven bool) ([]processlog.Inserted, error) {
	inserted, err := s.Store.Insert(ctx, tx, drafts, proven)
	for i := range inserted {
		inserted[i].ID = processlog.ID{}
	}
	return inserted, err
}

func (s *idless) IDs(ctx context.Context, tx processlog.Tx, keys []processlog.IdempotencyKey) (map[processlog.IdempotencyKey]processlog.ID, error) {
	s.asked.Add(1)
	if s.fails.Add(-1) >= 0 {
		return nil, errGone
	}
	return s.Store.IDs(ctx, tx, keys)
}

// Failure: F59
func TestLeaseThatAnEntryIsInsertedWithIsGivenBackOnceItsIDIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &idless{Store: compensatortest.NewMemoryStore()}
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, Lease: 24 * time.Hour, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		ran := new(harness.Calls)
		orders, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
			ran.Add(e.ID)
			return nil
		}, nil)
		require.NoError(t, err)
		stop := compensatortest.Run(t, c)
		synctest.Wait()
		store.fails.Store(3)
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := c.Record(ctx, tx, orders.Entry(harness.Order{}, compensator.Options{}), orders.Entry(harness.Order{}, compensator.Options{}))
			return err
		}))
		time.Sleep(time.Hour)
		require.GreaterOrEqual(t, store.asked.Load(), int64(4))
		require.Equal(t, 2, ran.Total(), "long before the lease has ended")
		stop()
		require.NoError(t, c.Close())
	})
}
