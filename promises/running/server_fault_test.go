package running

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

// lockedOut closes orders in a transaction that needs a row that locked, while it holds it, does not give.
func lockedOut(t *testing.T, w *harness.World, c *compensator.Compensator, cfg compensator.TypeConfig) (orders *compensator.Type[harness.Order], tries *atomic.Int64, unlock func()) {
	w.Exec("CREATE TABLE accounts (id INT PRIMARY KEY)")
	w.Exec("INSERT INTO accounts VALUES (1)")
	holder := w.Begin(w.DB)
	_, err := holder.ExecContext(t.Context(), "SELECT id FROM accounts WHERE id=1 FOR UPDATE")
	require.NoError(t, err)
	tries = new(atomic.Int64)
	orders = harness.Transactional(t, c, cfg, func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry) error {
		tries.Add(1)
		_, err := tx.ExecContext(ctx, "SELECT id FROM accounts WHERE id=1 FOR UPDATE NOWAIT")
		return err
	})
	return orders, tries, func() { require.NoError(t, holder.Rollback()) }
}

func TestServersConditionSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		orders, tries, unlock := lockedOut(t, w, c, compensator.TypeConfig{MaxProcessCount: 1000, Retry: compensator.Fixed(0)})
		w.Run(c)
		id := w.Put(orders, 1, compensator.Options{})
		w.Eventually(func() bool { return tries.Load() >= 3 }, "three attempts have met the lock")
		unlock()
		w.WaitState(id, compensator.Succeeded)
		require.Zero(t, w.Entry(c, id).ProcessCount)
		require.Equal(t, 1, w.Count("effects"))
	})
}

func TestEntryThatAlwaysMeetsTheServersConditionReachesAPerson(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.Quick())
	orders, tries, unlock := lockedOut(t, w, c, compensator.TypeConfig{MaxProcessCount: 2, Retry: compensator.Fixed(0)})
	defer unlock()
	w.Run(c)
	id := w.Put(orders, 1, compensator.Options{})
	w.WaitState(id, compensator.Dead)
	require.EqualValues(t, 4, tries.Load(), "two that count nothing, and two that do")
	require.Equal(t, compensator.EndedByExhausted, w.Entry(c, id).EndedBy)
	require.Contains(t, w.Entry(c, id).LastError, "4 in a row, the server's condition: Error ")
}
