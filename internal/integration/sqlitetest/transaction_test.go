package sqlitetest

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
	"github.com/compensator-go/compensator/processlog"
)

func TestRecordNeedsAnOpenTransaction(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, s := newLog(t, wal...)
	_, err := s.Insert(ctx, db, []processlog.Draft{draft("a")}, false)
	require.ErrorIs(t, err, compensator.ErrNoTransaction)
	assert.Zero(t, count(t, db))

	tx, err := db.BeginTx(ctx, nil) // This is a deferred transaction, as users begin it.
	require.NoError(t, err)
	_, err = s.Insert(ctx, tx, []processlog.Draft{draft("a")}, false)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	assert.Zero(t, count(t, db))

	tx, err = db.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = s.Insert(ctx, tx, []processlog.Draft{draft("a"), draft("b")}, false)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	assert.Equal(t, 2, count(t, db))
}

func TestProbeTellsAndChangesNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, s := newLog(t, "journal_mode(WAL)", "synchronous(EXTRA)", "busy_timeout(10000)")
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	defer conn.Close()
	for _, ends := range [][2]string{{"BEGIN", "ROLLBACK"}, {"BEGIN IMMEDIATE", "COMMIT"}, {"SAVEPOINT s", "RELEASE s"}} {
		require.ErrorIs(t, s.Probe(ctx, conn), compensator.ErrNoTransaction)
		_, err := conn.ExecContext(ctx, ends[0])
		require.NoError(t, err)
		require.NoError(t, s.Probe(ctx, conn), ends[0])
		_, err = conn.ExecContext(ctx, ends[1])
		require.NoError(t, err)
	}
	require.ErrorIs(t, s.Probe(ctx, conn), compensator.ErrNoTransaction)
	var level int
	require.NoError(t, conn.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&level))
	assert.Equal(t, 3, level, "EXTRA stays EXTRA")
}

func TestRecordAfterAnInterruptedWriteIsRefused(t *testing.T) {
	t.Parallel()
	db, s := newLog(t, wal...)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "CREATE TABLE orders (id INTEGER)")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = tx.ExecContext(ctx, "INSERT INTO orders WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT i FROM n")
	require.Error(t, err)
	_, err = s.Insert(t.Context(), tx, []processlog.Draft{draft("a")}, false)
	require.ErrorIs(t, err, compensator.ErrNoTransaction, "SQLite rolled back on its own; the handle looks open")
	_ = tx.Rollback()
	assert.Zero(t, count(t, db))
}

func TestBeginHoldsTheWriteLockFromTheOutset(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, s := newLog(t, "journal_mode(WAL)", "busy_timeout(20)")
	first, err := s.Begin(ctx)
	require.NoError(t, err)
	_, err = s.Begin(ctx)
	require.ErrorContains(t, err, "locked")
	require.True(t, compensator.Retryable(err), "whoever has the lock will let go")
	_, err = s.Resolve(ctx, compensator.IdempotencyKey("a"))
	require.ErrorIs(t, err, compensator.ErrBusy)
	_, err = s.Change(ctx, nil, false, processlog.Change{Ref: processlog.RowID(1), Action: processlog.ActionCancel})
	require.ErrorIs(t, err, compensator.ErrBusy)
	require.NoError(t, first.Commit())
	assertPoolIsClean(t, db, s)
}

// The outer transaction holds the file, so the inner one cannot begin.
func TestTransactionInsideAnotherIsToldThatTheFileIsBusy(t *testing.T) {
	t.Parallel()
	db := open(t, newFile(t, "journal_mode(WAL)", "busy_timeout(1000)"))
	require.NoError(t, compensator.Migrate(t.Context(), db))
	c, err := compensator.New(t.Context(), compensator.Config{DB: db})
	require.NoError(t, err)
	defer c.Close()
	nothing := func(context.Context, *compensator.ScopedTx) error { return nil }
	for name, from := range map[string]func(ctx context.Context) context.Context{
		"its context":       func(ctx context.Context) context.Context { return ctx },
		"a context outside": func(context.Context) context.Context { return t.Context() },
	} {
		err := c.InTx(t.Context(), func(ctx context.Context, _ *compensator.ScopedTx) error {
			err := c.InTx(from(ctx), nothing)
			require.ErrorContains(t, err, "locked", name)
			require.True(t, compensator.Retryable(err), name)
			_, err = c.Cancel(from(ctx), compensator.IdempotencyKey("a"))
			require.ErrorIs(t, err, compensator.ErrBusy, name)
			return nil
		})
		require.NoError(t, err, name)
	}
	require.NoError(t, c.InTx(t.Context(), nothing), "the turn came back")
}

func TestWordsOfABusinessAreNotTakenForSQLites(t *testing.T) {
	t.Parallel()
	db, s := newLog(t, "journal_mode(WAL)", "busy_timeout(20)")
	first, err := s.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = first.Rollback() }()
	_, busy := db.ExecContext(t.Context(), "UPDATE common_process_log SET state=0")
	require.True(t, compensator.Retryable(fmt.Errorf("place order: %w", errors.Join(errors.New("sold out"), busy))))
	for _, words := range []string{"the table is locked", "database is locked", busy.Error()} {
		require.False(t, compensator.Retryable(errors.New(words)), words)
	}
}

func assertPoolIsClean(t *testing.T, db *sql.DB, s processlog.Store) {
	for range db.Stats().OpenConnections + 1 {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close() // Keep each connection until the end, so that the next db.Conn returns another connection.
		assert.ErrorIs(t, s.Probe(t.Context(), conn), compensator.ErrNoTransaction)
	}
}

func TestCancelledTransactionLeavesThePoolClean(t *testing.T) {
	t.Parallel()
	db, s := newLog(t, wal...)
	ctx, cancel := context.WithCancel(t.Context())
	tx, err := s.Begin(ctx)
	require.NoError(t, err)
	_, err = s.Insert(ctx, tx, []processlog.Draft{draft("a")}, false)
	require.NoError(t, err)
	cancel()
	// The transaction has not been committed or rolled back yet. The cancelled context alone must let the next transaction begin.
	insert(t, s, draft("b"))
	assert.Error(t, tx.Commit())
	_ = tx.Rollback()
	assert.Equal(t, 1, count(t, db))
	assertPoolIsClean(t, db, s)
}

func TestTransactionCancelledWhileItWaitsLeavesThePoolClean(t *testing.T) {
	t.Parallel()
	db, s := newLog(t, "journal_mode(WAL)", "busy_timeout(100)")
	first, err := s.Begin(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = s.Begin(ctx)
	require.Error(t, err)
	require.NoError(t, first.Rollback())
	assertPoolIsClean(t, db, s)
}

func TestCommitThatFailsEndsItsTransaction(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, s := newLog(t, "journal_mode(DELETE)", "busy_timeout(20)")
	insert(t, s, draft("a"), draft("b"))
	tx, err := s.Begin(ctx)
	require.NoError(t, err)
	_, err = s.Insert(ctx, tx, []processlog.Draft{draft("c")}, false)
	require.NoError(t, err)
	reader, err := db.QueryContext(ctx, "SELECT id FROM common_process_log") // Without WAL this reader blocks COMMIT.
	require.NoError(t, err)
	require.True(t, reader.Next())
	require.ErrorContains(t, tx.Commit(), "locked")
	require.NoError(t, reader.Close())
	assertPoolIsClean(t, db, s)
	assert.Equal(t, 2, count(t, db))
}

func TestCommitWithRowsStillOpen(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, s := newLog(t, wal...)
	insert(t, s, draft("a"), draft("b"))
	tx, err := s.Begin(ctx)
	require.NoError(t, err)
	rows, err := tx.QueryContext(ctx, "SELECT id FROM common_process_log")
	require.NoError(t, err)
	require.True(t, rows.Next())
	_, err = s.Insert(ctx, tx, []processlog.Draft{draft("c")}, true)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	_ = rows.Close()
	assert.Equal(t, 3, count(t, db))
	assertPoolIsClean(t, db, s)
}

func TestNowIsSQLitesClockToTheMillisecond(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, s := newLog(t, wal...)
	// A trigger stores SQLite's clock at each insert. The clock does not move within one statement, so created_at must
	// be exactly the time that the trigger stored.
	_, err := db.ExecContext(ctx, `CREATE TABLE clock (id INTEGER, text TEXT);
		CREATE TRIGGER tick AFTER INSERT ON common_process_log BEGIN INSERT INTO clock VALUES (NEW.id, strftime('%s|%f','now')); END`)
	require.NoError(t, err)
	var drafts []processlog.Draft
	for i := range 1000 {
		d := draft(time.Duration(i).String())
		d.Delay = time.Second
		drafts = append(drafts, d)
	}
	tx, err := s.Begin(ctx)
	require.NoError(t, err)
	for _, d := range drafts {
		_, err := s.Insert(ctx, tx, []processlog.Draft{d}, true)
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
	var wrong, moments int
	require.NoError(t, db.QueryRowContext(ctx, `SELECT COALESCE(SUM(created_at <> CAST(text AS INTEGER)*1000 + CAST(substr(text,-3) AS INTEGER)
		OR next_at <> created_at + 1001 OR typeof(created_at) <> 'integer'), 0), COUNT(DISTINCT created_at) FROM common_process_log JOIN clock USING (id)`).Scan(&wrong, &moments))
	assert.Zero(t, wrong)
	assert.Greater(t, moments, 1)
}

// After SQLite has rolled back, every later statement would commit by itself, so the library must refuse it.
// Failure: F2
func TestNothingIsSentOnceSQLiteHasRolledBack(t *testing.T) {
	t.Parallel()
	for name, rollback := range map[string]func(ctx context.Context, tx *compensator.ScopedTx) error{
		"exec": func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := tx.ExecContext(ctx, endless)
			return err
		},
		"prepared": func(ctx context.Context, tx *compensator.ScopedTx) error {
			stmt, err := tx.PrepareContext(t.Context(), endless)
			require.NoError(t, err)
			defer stmt.Close()
			_, err = stmt.ExecContext(ctx)
			return err
		},
		"rows": func(ctx context.Context, tx *compensator.ScopedTx) error {
			return tx.QueryRowContext(ctx, endless+" RETURNING id").Scan(new(int))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t, newFile(t, wal...))
			require.NoError(t, compensator.Migrate(t.Context(), db))
			_, err := db.Exec("CREATE TABLE orders (id INTEGER)")
			require.NoError(t, err)
			c, err := compensator.New(t.Context(), compensator.Config{DB: db})
			require.NoError(t, err)
			defer func() { assert.NoError(t, c.Close()) }()
			require.ErrorIs(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
				early, err := tx.PrepareContext(ctx, "INSERT INTO orders VALUES (1)")
				require.NoError(t, err)
				defer early.Close()
				short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				require.Error(t, rollback(short, tx)) // The caller ignores the error.
				_, err = early.ExecContext(ctx)
				assert.ErrorIs(t, err, compensator.ErrTxAborted)
				_, err = tx.ExecContext(ctx, "INSERT INTO orders VALUES (1)")
				assert.ErrorIs(t, err, compensator.ErrTxAborted)
				return nil
			}), compensator.ErrTxAborted)
			require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO nowhere VALUES (1)")
				require.Error(t, err, "a statement that fails by itself ends nothing")
				_, err = tx.ExecContext(ctx, "INSERT INTO orders VALUES (2)")
				return err
			}))
			var n int
			require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM orders").Scan(&n))
			assert.Equal(t, 1, n)
		})
	}
}

const endless = "INSERT INTO orders WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT i FROM n"
