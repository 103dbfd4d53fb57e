package running

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

// lockedOut locks a row, and registers a transactional handler that fails at once while this row is locked. unlock
// releases the row.
func lockedOut(t *testing.T, w *harness.World, c *compensator.Compensator, cfg compensator.HandlerConfig[harness.Order]) (orders *compensator.Type[harness.Order], tries *atomic.Int64, unlock func()) {
	w.Exec("CREATE TABLE accounts (id INT PRIMARY KEY)")
	w.Exec("INSERT INTO accounts VALUES (1)")
	holder := w.Begin(w.DB)
	_, err := holder.ExecContext(t.Context(), "SELECT id FROM accounts WHERE id=1 FOR UPDATE")
	require.NoError(t, err)
	tries = new(atomic.Int64)
	orders = harness.HandleTransactional(t, c, cfg, func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry) error {
		tries.Add(1)
		_, err := tx.ExecContext(ctx, "SELECT id FROM accounts WHERE id=1 FOR UPDATE NOWAIT")
		return err
	})
	return orders, tries, func() { require.NoError(t, holder.Rollback()) }
}

// Failure: F74
func TestServersConditionSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		orders, tries, unlock := lockedOut(t, w, c, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1000, Retry: compensator.Fixed(0)})
		w.Run(c)
		id := w.Record(orders, 1, compensator.Options{})
		w.Eventually(func() bool { return tries.Load() >= 3 }, "three attempts have met the lock")
		unlock()
		w.WaitState(id, compensator.Succeeded)
		require.Zero(t, w.Entry(c, id).ProcessCount)
		require.Equal(t, 1, w.Count("effects"))
	})
}

// Failure: F74
func TestEntryThatAlwaysMeetsTheServersConditionReachesAPerson(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, tries, unlock := lockedOut(t, w, c, compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(0)})
	defer unlock()
	w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	w.WaitState(id, compensator.Dead)
	require.EqualValues(t, 4, tries.Load(), "two that count nothing, and two that do")
	require.Equal(t, compensator.EndedByExhausted, w.Entry(c, id).EndedBy)
	require.Contains(t, w.Entry(c, id).LastError, "4 in a row, the server's condition: Error ")
}

// The library writes the number of consecutive server errors into LastError, and must not take it from a handler's
// text.
// Failure: F74
func TestTextOfAHandlersErrorSeedsNoCount(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	var tries atomic.Int64
	locked := &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded"}
	orders := harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{MaxAttempts: 3, Retry: compensator.Fixed(0)}, func(context.Context, *compensator.ScopedTx, *compensator.Entry) error {
		switch tries.Add(1) {
		case 1:
			return compensator.Unavailable(errors.New("7 in a row, the server's condition: no bank"))
		case 5:
			return nil
		}
		return locked
	})
	w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	w.WaitState(id, compensator.Succeeded)
	require.EqualValues(t, 5, tries.Load())
	require.Zero(t, w.Entry(c, id).ProcessCount, "three conditions in a row spend nothing")
}

// refusingStore is a store whose server answers each COMMIT of a handler with an error and rolls back.
type refusingStore struct {
	*compensatortest.MemoryStore
	err error
}

func (s *refusingStore) Begin(ctx context.Context) (processlog.Transaction, error) {
	tx, err := s.BeginTx(ctx)
	return refusedTx{tx, s.err}, err
}

type refusedTx struct {
	*compensatortest.MemoryTx
	err error
}

func (tx refusedTx) Commit() error {
	_ = tx.Rollback()
	return tx.err
}

// After some errors of a COMMIT the transaction has certainly been rolled back, after others only perhaps.
// Failure: F74
func TestCommitThatIsAlwaysRefusedReachesAPerson(t *testing.T) {
	t.Parallel()
	for _, number := range []uint16{1180, 1213, 3100} {
		synctest.Test(t, func(t *testing.T) {
			store := &refusingStore{compensatortest.NewMemoryStore(), &mysql.MySQLError{Number: number, Message: "refused at COMMIT"}}
			c, err := compensator.New(t.Context(), compensator.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			ran := 0
			_, err = compensator.HandleTx(t.Context(), c, "order", func(context.Context, *compensator.ScopedTx, *compensator.Entry, string) error {
				ran++
				return nil
			}, &compensator.HandlerConfig[string]{MaxAttempts: 2, Retry: compensator.Fixed(0)})
			require.NoError(t, err)
			tx, err := store.BeginTx(t.Context())
			require.NoError(t, err)
			receipt, err := c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "order", Content: []byte(`"x"`)})
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			receipt.Committed()
			stop := compensatortest.Run(t, c)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, compensator.Dead, store.Rows()[0].State)
			require.Equal(t, compensator.EndedByExhausted, store.Rows()[0].EndedBy)
			require.Equal(t, 4, ran, "two that count nothing, and two that do")
			require.Contains(t, store.Rows()[0].LastError, "4 in a row, the server's condition: commit: ")
			var told []string
			for _, problem := range c.Health(t.Context()).Problems {
				told = append(told, fmt.Sprint(problem.What, " ", problem.Times))
			}
			require.Equal(t, []string{
				"attempts end with nothing counted: something they need is not available 2",
				"attempts fail, and count, for they have met the database's condition too often in a row 2",
			}, told)
			stop()
			require.NoError(t, c.Close())
		})
	}
}
