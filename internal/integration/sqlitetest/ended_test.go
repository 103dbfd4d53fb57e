package sqlitetest

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

// Handlers write in their own transactions, so the table of effects shows whether the payment or the handler won.
// Failure: F73
func TestPaymentRacesTheEndOfItsClosing(t *testing.T) {
	t.Parallel()
	db := open(t, newFile(t, "journal_mode(WAL)", "busy_timeout(10000)")+"&_txlock=immediate")
	require.NoError(t, compensator.Migrate(t.Context(), db))
	_, err := db.Exec("CREATE TABLE effects (what TEXT, entry INTEGER)")
	require.NoError(t, err)
	c, err := compensator.New(t.Context(), compensator.Config{DB: db, PollInterval: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	const effect = "INSERT INTO effects (what, entry) VALUES (?, ?)"
	closes := func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, n int) error {
		if n%3 == 0 {
			return errors.New("the store is closed")
		}
		_, err := tx.ExecContext(ctx, effect, "closed", e.ID.Row())
		return err
	}
	typ := compensator.HandlerConfig[int]{MaxAttempts: 1, MaxCompensateAttempts: 1}
	simple, err := compensator.HandleTx(t.Context(), c, "close_order", closes, &typ)
	require.NoError(t, err)
	typ.Compensate = func(ctx context.Context, e *compensator.Entry, _ int) error {
		_, err := db.ExecContext(ctx, effect, "undone", e.ID.Row())
		return cmp.Or(err, errors.New("the bank is closed"))
	}
	undoes, err := compensator.HandleTx(t.Context(), c, "close_undone", closes, &typ)
	require.NoError(t, err)
	running(t, c)

	const rounds = 60
	atRest := func(n int) func() bool {
		return func() bool {
			var ended int
			err := db.QueryRow("SELECT COUNT(*) FROM common_process_log WHERE state NOT IN (0,-1,-3)").Scan(&ended)
			return err == nil && ended == n
		}
	}
	var paid, dead, late int
	var ids []compensator.EntryID
	for n := 1; n <= rounds; n++ {
		orders := []*compensator.Type[int]{simple, undoes}[n%2]
		var receipt *compensator.Receipt
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) (err error) {
			if receipt, err = orders.Record(ctx, tx, n, compensator.Options{Delay: time.Millisecond}); err == nil && n%5 == 0 {
				_, err = tx.ExecContext(ctx, "UPDATE common_process_log SET delivery_count=4 WHERE id=?", receipt.ID().Row())
			}
			return err
		}))
		ids = append(ids, receipt.ID())
		if n%4 == 0 {
			require.Eventually(t, atRest(n), waitTimeout, 5*time.Millisecond)
		}
		err := c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			if _, err := tx.ExecContext(ctx, effect, "paid", receipt.ID().Row()); err != nil {
				return err
			}
			found, err := c.CancelTx(ctx, tx, receipt.ID())
			if found.WasDead {
				dead++
			}
			return err
		})
		if errors.As(err, new(*compensator.StateError)) {
			late++
			continue
		}
		require.NoError(t, err)
		paid++
	}
	require.Eventually(t, atRest(rounds), waitTimeout, 5*time.Millisecond)
	for _, id := range ids {
		e, err := c.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, e.State == compensator.Cancelled, happened(t, db, "paid", id), "entry %s: %s by %s", id, e.State, e.EndedBy)
		require.Equal(t, e.State == compensator.Succeeded, happened(t, db, "closed", id), "entry %s: %s by %s", id, e.State, e.EndedBy)
		require.False(t, e.State == compensator.Cancelled && happened(t, db, "undone", id), "entry %s was compensated and paid", id)
	}
	t.Logf("%d paid, %d of them with a dead closing, %d too late", paid, dead, late)
	require.NotZero(t, dead)
	require.NotZero(t, late)
}

func happened(t *testing.T, db *sql.DB, what string, id compensator.EntryID) bool {
	t.Helper()
	var n int
	require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM effects WHERE what=? AND entry=?", what, id.Row()).Scan(&n))
	require.LessOrEqual(t, n, 1)
	return n == 1
}
