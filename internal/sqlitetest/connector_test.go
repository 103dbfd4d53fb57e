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

// watched is a Compensator on a database that was opened on a Connector.
func watched(t *testing.T) (*compensator.Compensator, *sql.DB) {
	c, db := kit.New(t)
	_, err := db.Exec("CREATE TABLE orders (id TEXT)")
	require.NoError(t, err)
	return c, db
}

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
				require.Error(t, err) // and swallowed
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

// END is SQLite's other word for COMMIT, and [s] its other spelling of a name.
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
			require.Error(t, err) // and swallowed
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

// What docs/operations.md says of _txlock. Nobody holds the lock any more when the entry is refused: what was read is old.
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
		if refused { // otherwise it would wait
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
