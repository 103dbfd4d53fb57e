package wrappertest

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/XSAM/otelsql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
)

// Failure: F40
func TestCommitIsSeenThroughAWrapper(t *testing.T) {
	t.Parallel()
	for name, open := range seeing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, open)
			compensatortest.Run(t, w.Compensator)
			back := w.begin(t)
			w.record(t, back, "rolled back")
			require.NoError(t, back.Rollback())

			tx := w.begin(t)
			w.record(t, tx, "committed")
			require.NoError(t, tx.Commit())
			assert.Equal(t, "committed", w.next(t))

			require.NoError(t, w.InTx(t.Context(), func(_ context.Context, tx *compensator.ScopedTx) error {
				w.record(t, tx, "in a transaction of the library")
				return nil
			}))
			assert.Equal(t, "in a transaction of the library", w.next(t))
			assert.Empty(t, w.log.String())
		})
	}
}

// Failure: F40
func TestLostTransactionIsSeenThroughAWrapper(t *testing.T) {
	t.Parallel()
	for name, open := range seeing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, open)
			tx := w.begin(t)
			w.record(t, tx, "lost")
			swallowDeadlock(t, w.db, tx)
			_, err := tx.ExecContext(t.Context(), "UPDATE orders SET n=99 WHERE id=5")
			require.ErrorIs(t, err, compensator.ErrTxAborted)
			require.ErrorIs(t, tx.Commit(), compensator.ErrTxAborted)
			compensatortest.RequireRecorded(t, w.Compensator, "run", 0)
			var n int
			require.NoError(t, w.db.QueryRow("SELECT n FROM orders WHERE id=5").Scan(&n))
			assert.NotEqual(t, 99, n)
		})
	}
}

func swallowDeadlock(t *testing.T, db *sql.DB, tx *sql.Tx) {
	t.Helper()
	rival, err := db.Begin()
	require.NoError(t, err)
	_, err = rival.Exec("UPDATE orders SET n=n+1 WHERE id>1") // This transaction has written more than tx, so InnoDB rolls tx back.
	require.NoError(t, err)
	_, err = rival.Exec("INSERT INTO orders VALUES (11,0),(12,0),(13,0),(14,0),(15,0),(16,0)")
	require.NoError(t, err)
	_, err = tx.Exec("UPDATE orders SET n=n+1 WHERE id=1")
	require.NoError(t, err)
	waited := make(chan error, 1)
	go func() {
		_, err := rival.Exec("UPDATE orders SET n=n+1 WHERE id=1")
		waited <- err
	}()
	_, err = tx.Exec("UPDATE orders SET n=n+1 WHERE id=2")
	require.ErrorContains(t, err, "1213")
	require.NoError(t, <-waited, "the wrong transaction was rolled back")
	require.NoError(t, rival.Rollback())
}

// Failure: F40
func TestTransactionOfAnotherDatabaseIsRefusedThroughAWrapper(t *testing.T) {
	t.Parallel()
	one, other := newWorld(t, seeing["otelsql outside"]), newWorld(t, seeing["otelsql outside"])
	_, err := one.run.Record(t.Context(), other.begin(t), "x", compensator.Options{})
	require.ErrorAs(t, err, new(*compensator.FieldError))
}

// Failure: F40
func TestWrapperThatHidesItsConnectorIsToldOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(t *testing.T, dsn string) *sql.DB { return sql.OpenDB(deaf{compensator.Connector(bare(t, dsn))}) })
	assert.Equal(t, 1, strings.Count(w.log.String(), "passes no context on"), w.log.String())
	assert.Contains(t, w.log.String(), "compensator.Connector(theOtherWrapper(connector))", "the remedy")

	compensatortest.Run(t, w.Compensator)
	tx := w.begin(t)
	receipt := w.record(t, tx, "reported by Committed")
	require.NoError(t, tx.Commit())
	receipt.Committed()
	assert.Equal(t, "reported by Committed", w.next(t), "all works as on a plain pool")
	assert.Equal(t, 1, strings.Count(w.log.String(), "passes no context on"))
}

// Failure: F40
func TestPlainPoolIsNotWarnedOf(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]opened{
		"bare":    func(t *testing.T, dsn string) *sql.DB { return sql.OpenDB(bare(t, dsn)) },
		"deaf":    func(t *testing.T, dsn string) *sql.DB { return sql.OpenDB(deaf{bare(t, dsn)}) },
		"otelsql": func(t *testing.T, dsn string) *sql.DB { return otelsql.OpenDB(bare(t, dsn)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.NotContains(t, newWorld(t, open).log.String(), "passes no context on")
		})
	}
}
