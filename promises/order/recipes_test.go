package order

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

// These tests run recipes from docs/how-to on a real server.

func accounts(w *harness.World) {
	w.Exec("CREATE TABLE accounts (user VARCHAR(64) PRIMARY KEY, balance INT NOT NULL, recorded INT NOT NULL, done INT NOT NULL) ENGINE=InnoDB")
	w.Exec("INSERT INTO accounts VALUES ('ann', 0, 0, 0)")
}

// Failure: F117
func TestRowLockLetsOneOfAnAccountWorkAtATime(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	accounts(w)
	var orders *compensator.Type[harness.Order]
	for range 2 {
		c := w.New(w.QuickConfig())
		var err error
		orders, err = compensator.HandleTx(t.Context(), c, "book", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, o harness.Order) error {
			var balance int
			if err := tx.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE user=? FOR UPDATE NOWAIT", e.UserID).Scan(&balance); err != nil {
				return compensator.Snooze(20 * time.Millisecond)
			}
			// The balance is read and written in separate statements, so two concurrent handlers would lose an update.
			_, err := tx.ExecContext(ctx, "UPDATE accounts SET balance=? WHERE user=?", balance+o.Number, e.UserID)
			return err
		}, nil)
		require.NoError(t, err)
		w.Run(c)
	}
	for range 40 {
		w.Record(orders, 1, withKey("ann"))
	}
	w.WaitAllEnded()
	require.Equal(t, 1, w.Count("accounts WHERE balance=40"))
	require.Equal(t, 40, w.Count("common_process_log WHERE state=1 AND process_count=0"), "who waits spends no attempt")
}

// Failure: F117
func TestNumbersOfAnAccountKeepItsOrder(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	accounts(w)
	var orders *compensator.Type[harness.Order]
	for range 2 {
		c := w.New(w.QuickConfig())
		var err error
		orders, err = compensator.HandleTx(t.Context(), c, "book", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, o harness.Order) error {
			res, err := tx.ExecContext(ctx, "UPDATE accounts SET done=done+1 WHERE user=? AND done=?", e.UserID, o.Number-1)
			if err != nil {
				return err
			}
			if n, err := res.RowsAffected(); err != nil || n == 0 {
				return compensator.Snooze(20 * time.Millisecond)
			}
			_, err = tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", o.Number)
			return err
		}, nil)
		require.NoError(t, err)
		w.Run(c)
	}
	for range 25 {
		var receipt *compensator.Receipt
		w.InTx(w.DB, func(tx *sql.Tx) {
			_, err := tx.ExecContext(t.Context(), "UPDATE accounts SET recorded=recorded+1 WHERE user='ann'")
			require.NoError(t, err)
			var number int
			require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT recorded FROM accounts WHERE user='ann'").Scan(&number))
			receipt, err = orders.Record(t.Context(), tx, harness.Order{Number: number}, withKey("ann"))
			require.NoError(t, err)
		})
		receipt.Committed()
	}
	w.WaitAllEnded()
	rows, err := w.DB.QueryContext(t.Context(), "SELECT what FROM effects ORDER BY id")
	require.NoError(t, err)
	defer rows.Close()
	for want := 1; rows.Next(); want++ {
		var got int
		require.NoError(t, rows.Scan(&got))
		require.Equal(t, want, got)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, 25, w.Count("effects"))
}
