package harness

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/testservers"
)

type Statements interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// In Deadlock a rival has changed more rows than tx, so the server rolls tx back.
func (w *World) Deadlock(tx Statements) {
	w.T.Helper()
	w.DeadlockIn(tx, func() error {
		_, err := tx.ExecContext(w.T.Context(), "UPDATE accounts SET n=1 WHERE id=2")
		return err
	})
}

// DeadlockIn lets the server roll tx back in a deadlock with a rival, which has locked row 2 of the table accounts.
// meetRival must update row 2 in tx, and return the server's error.
func (w *World) DeadlockIn(tx Statements, meetRival func() error) {
	w.T.Helper()
	w.Exec("CREATE TABLE IF NOT EXISTS accounts (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB")
	w.Exec("REPLACE INTO accounts WITH RECURSIVE s (i) AS (SELECT 1 UNION ALL SELECT i+1 FROM s WHERE i < 100) SELECT i, 0 FROM s")
	_, err := tx.ExecContext(w.T.Context(), "UPDATE accounts SET n=1 WHERE id=1")
	require.NoError(w.T, err)
	rival, err := w.DB.Begin()
	require.NoError(w.T, err)
	_, err = rival.Exec("UPDATE accounts SET n=2 WHERE id>1")
	require.NoError(w.T, err)
	blocked := make(chan error, 1)
	go func() {
		_, err := rival.Exec("UPDATE accounts SET n=2 WHERE id=1")
		blocked <- err
	}()
	w.RequireNumber(meetRival(), 1213)
	require.NoError(w.T, <-blocked, "the wrong transaction was rolled back")
	require.NoError(w.T, rival.Rollback())
}

func (w *World) RequireNumber(err error, number uint16) {
	w.T.Helper()
	var mysqlErr *mysql.MySQLError
	require.Truef(w.T, errors.As(err, &mysqlErr), "got %v, want the server's error %d", err, number)
	require.Equal(w.T, number, mysqlErr.Number)
}

func (w *World) WaitLocked(n int) {
	w.T.Helper()
	w.Eventually(func() bool { return len(w.WaitingForRows()) == n }, "%d statements wait for a row", n)
}

var waitsForRow = regexp.MustCompile(`(?s)\nLOCK WAIT .*?\n(?:MySQL|MariaDB) thread id (\d+),`)

// WaitingForRows parses the InnoDB status text, because InnoDB builds that text for every query. InnoDB caches its
// other reports.
func (w *World) WaitingForRows() (ids []string) {
	w.T.Helper()
	var engine, name, text string
	require.NoError(w.T, w.DB.QueryRow("SHOW ENGINE INNODB STATUS").Scan(&engine, &name, &text))
	_, transactions, isFound := strings.Cut(text, "\nTRANSACTIONS\n")
	require.True(w.T, isFound)
	for _, match := range waitsForRow.FindAllStringSubmatch(transactions, -1) {
		if w.IsConnected(match[1]) {
			ids = append(ids, match[1])
		}
	}
	return ids
}

// IsConnected reads SHOW PROCESSLIST, because MySQL's information_schema.processlist fails if any running statement
// contains bytes that are not valid text.
func (w *World) IsConnected(id any) bool {
	w.T.Helper()
	config, err := mysql.ParseDSN(w.DSN)
	require.NoError(w.T, err)
	rows, err := w.DB.Query("SHOW PROCESSLIST")
	require.NoError(w.T, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(w.T, err)
	row, targets := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
	for i := range row {
		targets[i] = &row[i]
	}
	for rows.Next() {
		require.NoError(w.T, rows.Scan(targets...))
		if string(row[0]) == fmt.Sprint(id) && string(row[3]) == config.DBName {
			return true
		}
	}
	require.NoError(w.T, rows.Err())
	return false
}

// Begin begins a transaction. The end of the test rolls it back if it is still open.
func (w *World) Begin(db *sql.DB) *sql.Tx {
	w.T.Helper()
	tx, err := db.Begin()
	require.NoError(w.T, err)
	w.T.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// InEverySnapshotMode runs test on both kinds of pool. On MariaDB it runs test with innodb_snapshot_isolation off and
// on, whatever the server's default is.
func InEverySnapshotMode(t *testing.T, test func(t *testing.T, w *World, db *sql.DB, isWatched, isIsolated bool)) {
	isolation := []string{""}
	if testservers.SharedSQL(t).Flavor == "mariadb" {
		isolation = []string{"0", "1"}
	}
	for _, mode := range isolation {
		for kind, pool := range Pools {
			t.Run(kind+" "+mode, func(t *testing.T) {
				t.Parallel()
				w := NewWorld(t)
				params := map[string]string{}
				if mode != "" {
					params["innodb_snapshot_isolation"] = mode
				}
				test(t, w, w.Open(pool(WithParams(t, w.DSN, params))), kind == "connector", mode == "1")
			})
		}
	}
}

const InnodbNews = 150 * time.Millisecond

// LockingTransactions waits until a transaction in the database of the test has locked rows. It returns the connection
// ids of all transactions that have locked rows.
func (w *World) LockingTransactions() (ids []int64) {
	w.T.Helper()
	assert.Eventually(w.T, func() bool {
		rows, err := w.DB.Query("SELECT trx_mysql_thread_id FROM information_schema.innodb_trx t JOIN information_schema.processlist p " +
			"ON p.id=t.trx_mysql_thread_id WHERE p.db=DATABASE() AND trx_tables_locked>0")
		if !assert.NoError(w.T, err) {
			return false
		}
		defer rows.Close()
		for rows.Next() {
			var id int64
			assert.NoError(w.T, rows.Scan(&id))
			ids = append(ids, id)
		}
		return len(ids) > 0
	}, Timeout, InnodbNews, "a transaction holds row locks")
	return ids
}

func (w *World) Status(name string) (value int) {
	w.T.Helper()
	require.NoError(w.T, w.DB.QueryRow("SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(&name, &value))
	return value
}

func (w *World) LockRow(id compensator.EntryID) (release func()) {
	w.T.Helper()
	tx := w.Begin(w.DB)
	_, err := tx.Exec("UPDATE common_process_log SET user_name='held' WHERE id=?", id.Row())
	require.NoError(w.T, err)
	return func() { require.NoError(w.T, tx.Rollback()) }
}

func ExecAll(t *testing.T, conn *sql.Conn, texts []string) {
	t.Helper()
	for _, text := range texts {
		_, err := conn.ExecContext(t.Context(), text)
		require.NoError(t, err, text)
	}
}
