package sqlitetest

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	kit "github.com/compensator-go/compensator/compensatortest/sqlitetest"
)

func watched(t *testing.T) (*compensator.Compensator, *sql.DB) {
	c, db := kit.New(t)
	_, err := db.Exec("CREATE TABLE orders (id TEXT)")
	require.NoError(t, err)
	return c, db
}

// Failure: F2
func TestNothingFollowsARollbackOfSQLitesThroughAConnector(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(c *compensator.Compensator, db *sql.DB, work func(tx compensator.Tx)) error{
		"InTx": func(c *compensator.Compensator, _ *sql.DB, work func(tx compensator.Tx)) error {
			return c.InTx(t.Context(), func(_ context.Context, tx *compensator.ScopedTx) error { work(tx); return nil })
		},
		"a transaction of one's own": func(_ *compensator.Compensator, db *sql.DB, work func(tx compensator.Tx)) error {
			tx, err := db.Begin()
			require.NoError(t, err)
			work(tx)
			return tx.Commit()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, db := watched(t)
			require.ErrorIs(t, run(c, db, func(tx compensator.Tx) {
				_, err := c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "close", Content: []byte("{}")})
				require.NoError(t, err)
				short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				_, err = tx.ExecContext(short, endless)
				require.Error(t, err) // The caller ignores the error.
				_, err = tx.ExecContext(t.Context(), "INSERT INTO orders VALUES ('by itself')")
				assert.ErrorIs(t, err, compensator.ErrTxAborted)
			}), compensator.ErrTxAborted)
			var orders int
			require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM orders").Scan(&orders))
			assert.Zero(t, orders)
			assert.Zero(t, count(t, db))
		})
	}
}

// In SQLite, END is another word for COMMIT, and [s] is another way to quote a name.
// Failure: F3
func TestTransactionOnSQLiteIsNotCommittedWithoutItsEntry(t *testing.T) {
	t.Parallel()
	for name, statements := range map[string][]string{
		"commit":   {"COMMIT"},
		"end":      {"END"},
		"brackets": {"SAVEPOINT [s]", "ROLLBACK TO s", "COMMIT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, db := watched(t)
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			defer conn.Close()
			for _, stmt := range []string{"BEGIN", "INSERT INTO orders VALUES ('x')"} {
				_, err = conn.ExecContext(t.Context(), stmt)
				require.NoError(t, err)
			}
			_, err = c.Record(t.Context(), conn, compensator.NewEntry{BusinessType: ""})
			require.Error(t, err) // The caller ignores the error.
			for _, stmt := range statements {
				_, err = conn.ExecContext(t.Context(), stmt)
			}
			assert.ErrorIs(t, err, compensator.ErrNotRecorded)
			_, _ = conn.ExecContext(t.Context(), "ROLLBACK")
			var orders int
			require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders").Scan(&orders))
			assert.Zero(t, orders)
		})
	}
}

// Without _txlock=immediate, a transaction that reads first holds no write lock.
func TestTransactionThatReadsFirstIsRefusedUnlessItBeganWithTheLock(t *testing.T) {
	t.Parallel()
	for setting, refused := range map[string]bool{"": true, "&_txlock=immediate": false} {
		dsn := newFile(t, wal...)
		db, err := compensator.Open("sqlite", dsn+setting)
		require.NoError(t, err)
		defer db.Close()
		require.NoError(t, compensator.Migrate(t.Context(), db))
		c, err := compensator.New(t.Context(), compensator.Config{DB: db})
		require.NoError(t, err)
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, tx.QueryRow("SELECT COUNT(*) FROM common_process_log").Scan(new(int)))
		if refused { // If the transaction still held the lock, this write would wait.
			_, err = open(t, dsn).Exec("CREATE TABLE written_meanwhile (id TEXT)")
			require.NoError(t, err)
		}
		_, err = c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "close", Content: []byte("{}")})
		if refused {
			require.ErrorContains(t, err, "database is locked")
			require.NoError(t, tx.Rollback())
		} else {
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
		}
		require.NoError(t, c.Close())
	}
}

// A reader blocks every COMMIT until letGo is called. A COMMIT on the returned pool db fails after one second.
func keptOut(t *testing.T) (c *compensator.Compensator, db, others *sql.DB, letGo func()) {
	t.Helper()
	dsn := newFile(t, "busy_timeout(1000)", "foreign_keys(1)") + "&_txlock=immediate"
	db, err := compensator.Open("sqlite", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	require.NoError(t, compensator.Migrate(t.Context(), db))
	_, err = db.Exec("CREATE TABLE orders (id TEXT PRIMARY KEY, of TEXT REFERENCES orders DEFERRABLE INITIALLY DEFERRED)")
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO orders VALUES ('old', NULL)")
	require.NoError(t, err)
	c, err = compensator.New(t.Context(), compensator.Config{DB: db})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	others = open(t, dsn)
	reader, err := others.QueryContext(t.Context(), "SELECT id FROM orders")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, reader.Close()) })
	require.True(t, reader.Next())
	return c, db, others, func() { assert.NoError(t, reader.Close()) }
}

func assertLockIsFree(t *testing.T, db, others *sql.DB) {
	t.Helper()
	for _, pool := range []*sql.DB{db, others, db} {
		_, err := pool.Exec("UPDATE orders SET of = of")
		assert.NoError(t, err)
	}
}

func orders(t *testing.T, db *sql.DB) (ids []string) {
	t.Helper()
	rows, err := db.Query("SELECT id FROM orders ORDER BY id")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(t, rows.Err())
	return ids
}

// A COMMIT that finds the file busy leaves SQLite's transaction open.
// Failure: F11
func TestPlainCommitThatFindsTheFileBusyIsRunAgain(t *testing.T) {
	t.Parallel()
	c, db, others, letGo := keptOut(t)
	tries := 0
	require.NoError(t, c.WithRetry(t.Context(), "close-1", func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(ctx, "PRAGMA busy_timeout=20")
		require.NoError(t, err)
		_, err = tx.ExecContext(ctx, "INSERT INTO orders VALUES ('new', NULL)")
		require.NoError(t, err)
		_, err = c.Record(ctx, tx, compensator.NewEntry{BusinessType: "t", Content: []byte("{}"), Options: compensator.Options{IdempotencyKey: "close-1"}})
		require.NoError(t, err)
		err = tx.Commit()
		if tries++; tries == 1 {
			require.ErrorContains(t, err, "database is locked")
			require.NotErrorIs(t, err, compensator.ErrCommitUnknown, "it is rolled back, and known to be")
			letGo()
			assertLockIsFree(t, db, others)
			assert.Equal(t, []string{"old"}, orders(t, others))
		}
		return err
	}))
	assert.Equal(t, 2, tries)
	assert.Equal(t, []string{"new", "old"}, orders(t, others))
	assert.Equal(t, 1, count(t, db))
}

// A deferred constraint makes the COMMIT fail and leaves SQLite's transaction open.
// Failure: F11
func TestPlainCommitThatAConstraintRefusesEndsItsTransaction(t *testing.T) {
	t.Parallel()
	c, db, others, letGo := keptOut(t)
	letGo()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.Exec("INSERT INTO orders VALUES ('new', 'none')")
	require.NoError(t, err)
	_, err = c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "t", Content: []byte("{}")})
	require.NoError(t, err)
	err = tx.Commit()
	require.ErrorContains(t, err, "FOREIGN KEY")
	require.NotErrorIs(t, err, compensator.ErrCommitUnknown)
	assertLockIsFree(t, db, others)
	assert.Zero(t, count(t, db))
}

// If the caller sends neither COMMIT nor ROLLBACK again, the connection must be closed, so that no lock stays.
// Failure: F11
func TestCommitSentAsTextThatFindsTheFileBusyKeepsNoLock(t *testing.T) {
	t.Parallel()
	for _, then := range []string{"", "COMMIT", "ROLLBACK"} {
		t.Run("then "+then, func(t *testing.T) {
			t.Parallel()
			_, db, others, letGo := keptOut(t)
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			for _, statement := range []string{"PRAGMA busy_timeout=20", "BEGIN IMMEDIATE", "INSERT INTO orders VALUES ('new', NULL)"} {
				_, err = conn.ExecContext(t.Context(), statement)
				require.NoError(t, err)
			}
			_, err = conn.ExecContext(t.Context(), "COMMIT")
			require.ErrorContains(t, err, "database is locked")
			letGo()
			before := db.Stats().OpenConnections
			if then != "" {
				_, err = conn.ExecContext(t.Context(), then)
				require.NoError(t, err)
			}
			require.NoError(t, conn.Close())
			assert.Equal(t, then != "", db.Stats().OpenConnections == before, "it goes back to the pool once its transaction is over")
			assertLockIsFree(t, db, others)
			if then == "COMMIT" {
				assert.Equal(t, []string{"new", "old"}, orders(t, others))
			} else {
				assert.Equal(t, []string{"old"}, orders(t, others))
			}
		})
	}
}
