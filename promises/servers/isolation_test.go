package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

func isolationOf(w *harness.World, id int64) (level string) {
	w.T.Helper()
	assert.Eventually(w.T, func() bool {
		return w.DB.QueryRow("SELECT trx_isolation_level FROM information_schema.innodb_trx WHERE trx_mysql_thread_id=?", id).Scan(&level) == nil
	}, harness.Timeout, harness.InnodbNews, "connection %d has a transaction open", id)
	return level
}

// serversByDefault runs test on one server for each default isolation level except READ COMMITTED.
func serversByDefault(t *testing.T, test func(t *testing.T, w *harness.World)) {
	for _, level := range []string{"REPEATABLE-READ", "SERIALIZABLE"} {
		t.Run(level, func(t *testing.T) {
			server := testservers.NewSQL(t, "--transaction-isolation="+level)
			test(t, harness.WorldAt(t, server.Database(t)))
		})
	}
}

// Failure: F22, F23, F26
func TestOwnTransactionsAreReadCommittedWhateverTheServersDefault(t *testing.T) {
	t.Parallel()
	serversByDefault(t, func(t *testing.T, w *harness.World) {
		w.Exec("INSERT INTO common_process_log (id, idempotent_id, business_type, content, next_at, created_at, updated_at) VALUES (7,'k','by_hand','{}',0,NOW(),NOW())")
		for kind, pool := range harness.Pools {
			db := w.Open(pool(w.DSN))
			store, err := compensator.OpenStore(t.Context(), db, compensator.DefaultTable)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, store.Close()) })
			seen := 0
			_, err = store.Claim(t.Context(), []processlog.Wanted{{ID: processlog.RowID(7)}}, processlog.Token{1}, time.Second, func(*processlog.Row) bool {
				for _, id := range w.LockingTransactions() {
					assert.Equal(t, "READ COMMITTED", isolationOf(w, id), "a claim from a %s pool", kind)
					seen++
				}
				return false
			})
			require.NoError(t, err)
			assert.Equal(t, 1, seen)
			require.NoError(t, store.Close())
			transactionsGivenAreReadCommitted(w, db)
		}
	})
}

func transactionsGivenAreReadCommitted(w *harness.World, db *sql.DB) {
	w.T.Helper()
	cfg := w.QuickConfig()
	cfg.DB = db
	c := w.New(cfg)
	look := func(ctx context.Context, tx *compensator.ScopedTx) error {
		var id int64
		w.WriteEffect(tx, "look")
		if err := tx.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
			return err
		}
		assert.Equal(w.T, "READ COMMITTED", isolationOf(w, id))
		return nil
	}
	orders, err := compensator.HandleTx(w.T.Context(), c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, _ harness.Order) error {
		return look(ctx, tx)
	}, nil)
	require.NoError(w.T, err)
	stop := w.Run(c)
	var receipt *compensator.Receipt
	require.NoError(w.T, c.InTx(w.T.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		receipt, err = orders.Record(ctx, tx, harness.Order{}, compensator.Options{})
		return errors.Join(err, look(ctx, tx))
	}))
	w.WaitState(receipt.ID(), compensator.Succeeded)
	require.NoError(w.T, stop())
}

// Failure: F23
func TestEntriesRunWhateverTheServersDefaultIsolation(t *testing.T) {
	t.Parallel()
	serversByDefault(t, func(t *testing.T, w *harness.World) {
		for kind, pool := range harness.Pools {
			cfg := w.QuickConfig()
			cfg.DB = w.Open(pool(w.DSN))
			c := w.New(cfg)
			orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)}, func(_ *compensator.Entry, call int) error {
				if call == 1 {
					return errors.New("not yet")
				}
				return nil
			})
			stop := w.Run(c)
			for i := range 20 {
				w.InTx(cfg.DB, func(tx *sql.Tx) {
					w.WriteEffect(tx, fmt.Sprint(kind, i))
					_, err := orders.Record(t.Context(), tx, harness.Order{Number: i}, compensator.Options{Delay: time.Duration(i) * 10 * time.Millisecond})
					require.NoError(t, err)
				})
			}
			w.WaitAllEnded()
			require.NoError(t, stop())
			assert.Equal(t, 40, ran.Total())
		}
		assert.Equal(t, 40, w.Count("common_process_log WHERE state=1 AND process_count=1"))
	})
}

// Failure: F23
func TestFenceLostToARowChangedSinceTheSnapshotDropsTheOutcome(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	dsn, aborts := w.DSN, testservers.SharedSQL(t).Flavor == "mariadb"
	if aborts {
		dsn = harness.WithParams(t, dsn, map[string]string{"innodb_snapshot_isolation": "1"})
	}
	store, err := compensator.OpenStore(t.Context(), w.Open(harness.PlainPool(dsn)), compensator.DefaultTable)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	c := w.New(w.QuickConfig())
	var receipt *compensator.Receipt
	w.InTx(w.DB, func(tx *sql.Tx) {
		receipt, err = c.Record(t.Context(), tx, harness.NewUntyped(1)...)
		require.NoError(t, err)
	})
	tx := w.Begin(w.Open(harness.PlainPool(dsn))) // This is a handler's own transaction, at the server's default of REPEATABLE READ.
	var entries int
	require.NoError(t, tx.QueryRow("SELECT COUNT(*) FROM common_process_log").Scan(&entries))
	w.WriteEffect(tx, "handler")
	require.NoError(t, c.Reschedule(t.Context(), receipt.ID(), time.Hour))
	err = store.SettleTx(t.Context(), tx, processlog.Token{9}, processlog.Outcome{ID: receipt.ID(), IdempotencyKey: receipt.Entries[0].IdempotencyKey, Version: 0, To: compensator.Succeeded, EndedBy: compensator.EndedByHandler})
	require.ErrorIs(t, err, compensator.ErrLeaseLost)
	if aborts {
		w.RequireNumber(err, 1020) // Require this error, because a missing row alone would not prove the conflict.
	}
	require.NoError(t, tx.Rollback())
	assert.Equal(t, compensator.Pending, w.State(receipt.ID()))
}

// Failure: F16, F23
func TestActionInAnOldSnapshotSeesTheEntryAsItIs(t *testing.T) {
	t.Parallel()
	harness.InEverySnapshotMode(t, func(t *testing.T, w *harness.World, db *sql.DB, _, isolated bool) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		var receipt *compensator.Receipt
		w.InTx(db, func(tx *sql.Tx) {
			var err error
			receipt, err = c.Record(t.Context(), tx, harness.NewUntyped(1)...)
			require.NoError(t, err)
		})
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		read := func() (s compensator.State) {
			require.NoError(t, tx.QueryRow("SELECT state FROM common_process_log").Scan(&s))
			return s
		}
		require.Equal(t, compensator.Pending, read())
		require.NoError(t, harness.ErrOf(c.Complete(t.Context(), receipt.ID())))
		require.Equal(t, compensator.Pending, read(), "the snapshot is an old one")
		_, err = c.CancelTx(t.Context(), tx, receipt.ID())
		if isolated { // The entry has changed since the snapshot of the transaction, so the server rolls back.
			require.ErrorIs(t, err, compensator.ErrTxAborted)
			require.NoError(t, tx.Rollback())
			tx = w.Begin(db) // Run the whole transaction again.
			_, err = c.CancelTx(t.Context(), tx, receipt.ID())
		}
		var refused *compensator.StateError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, compensator.Succeeded, refused.State)
		w.WriteEffect(tx, "business goes on")
		require.NoError(t, tx.Commit())
		assert.Equal(t, compensator.Succeeded, w.State(receipt.ID()))
	})
}
