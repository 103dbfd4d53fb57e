package txwatch

import (
	"database/sql"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// deadlock makes the server roll back the transaction tx because of a deadlock. A second transaction changes more rows
// than tx, so the server chooses tx for the rollback. The transaction tx must have run no statement yet. The function
// meet must run a statement in tx that locks row 2.
func deadlock(t *testing.T, tx connectorHandle, plain *sql.DB, meet func()) {
	t.Helper()
	mustExec(t, tx, "UPDATE t SET n = n+1 WHERE id = 1")
	other := begin(t, plain)
	mustExec(t, other, "UPDATE t SET n = n+1 WHERE id >= 2")
	waited := make(chan error, 1)
	go func() {
		_, err := other.Exec("UPDATE t SET n = n+1 WHERE id = 1")
		waited <- err
	}()
	meet()
	require.NoError(t, <-waited, "the wrong transaction was rolled back")
	require.NoError(t, other.Rollback())
}

func requireMySQL(t *testing.T, err error, number uint16) {
	t.Helper()
	var answer *mysql.MySQLError
	require.ErrorAs(t, err, &answer)
	require.Equal(t, number, answer.Number)
}

func TestSwallowedDeadlockRefusesEntriesAndCommit(t *testing.T) {
	query := func(t *testing.T, tx *sql.Tx, stmt string, args ...any) error {
		rows, err := tx.Query(stmt, args...)
		require.NoError(t, err)
		defer rows.Close()
		require.True(t, rows.Next(), "row 1 is ours and was to be read before the deadlock")
		assert.False(t, rows.Next())
		return rows.Err()
	}
	for name, meet := range map[string]func(*testing.T, *sql.Tx) error{
		"exec": func(_ *testing.T, tx *sql.Tx) error { _, err := tx.Exec("UPDATE t SET n = 7 WHERE id = 2"); return err },
		"prepared exec": func(_ *testing.T, tx *sql.Tx) error {
			_, err := tx.Exec("UPDATE t SET n = ? WHERE id = 2", 7)
			return err
		},
		"rows": func(t *testing.T, tx *sql.Tx) error {
			return query(t, tx, "SELECT id FROM t WHERE id BETWEEN 1 AND 2 ORDER BY id FOR UPDATE")
		},
		"prepared rows": func(t *testing.T, tx *sql.Tx) error {
			return query(t, tx, "SELECT id FROM t WHERE id BETWEEN ? AND 2 ORDER BY id FOR UPDATE", 1)
		},
		"rows never read": func(t *testing.T, tx *sql.Tx) error {
			rows, err := tx.Query("SELECT id FROM t WHERE id BETWEEN 1 AND 2 ORDER BY id FOR UPDATE")
			require.NoError(t, err)
			return rows.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			db, plain := connectorDB(t)
			tx := begin(t, db)
			w, got := enlisted(t, tx)
			deadlock(t, tx, plain, func() { requireMySQL(t, meet(t, tx), 1213) })
			assert.ErrorIs(t, w.Err(), processlog.ErrTxAborted)
			assert.ErrorIs(t, w.Err(), processlog.ErrNoTransaction)
			assert.Equal(t, outcomes{RolledBack}, *got, "reservations wait for nothing")

			require.ErrorIs(t, tx.Commit(), processlog.ErrTxAborted)
			assert.Equal(t, outcomes{RolledBack}, *got)
			assert.ErrorIs(t, probe(t, db).Err(), processlog.ErrNoTransaction)
			assert.NotErrorIs(t, probe(t, db).Err(), processlog.ErrTxAborted, "the state leaked into the pool")
		})
	}
}

func TestEntryAfterSwallowedDeadlockIsRefused(t *testing.T) {
	db, plain := connectorDB(t)
	tx := begin(t, db)
	deadlock(t, tx, plain, func() {
		_, err := tx.Exec("UPDATE t SET n = 7 WHERE id = 2")
		requireMySQL(t, err, 1213)
	})
	w := probe(t, tx)
	require.ErrorIs(t, w.Err(), processlog.ErrTxAborted)
	w.Taint(w.Err())
	err := tx.Commit()
	require.ErrorIs(t, err, processlog.ErrTxAborted)
	require.ErrorIs(t, err, processlog.ErrNotRecorded)
}

func TestCommitOfDeadlockedTransactionWithoutEntriesIsLeftAlone(t *testing.T) {
	db, plain := connectorDB(t)
	tx := begin(t, db)
	deadlock(t, tx, plain, func() {
		_, err := tx.Exec("UPDATE t SET n = 7 WHERE id = 2")
		requireMySQL(t, err, 1213)
	})
	require.NoError(t, tx.Commit())
}

func TestSnapshotConflictAbortsTransaction(t *testing.T) {
	db, plain := connectorDB(t)
	conn := connection(t, db)
	_, err := conn.ExecContext(t.Context(), "SET innodb_snapshot_isolation = ON")
	if testservers.SharedSQL(t).Flavor != "mariadb" {
		require.Error(t, err, "this server has it too now: test it")
		return
	}
	require.NoError(t, err)
	tx, err := conn.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	w, got := enlisted(t, tx)
	require.NoError(t, tx.QueryRow("SELECT n FROM t WHERE id = 1").Scan(new(int)))
	mustExec(t, plain, "UPDATE t SET n = 5 WHERE id = 1")
	_, err = tx.Exec("UPDATE t SET n = 6 WHERE id = 1")
	requireMySQL(t, err, 1020)
	require.ErrorIs(t, w.Err(), processlog.ErrTxAborted)
	require.ErrorIs(t, tx.Commit(), processlog.ErrTxAborted)
	assert.Equal(t, outcomes{RolledBack}, *got)
}

func TestLockWaitTimeoutKeepsTransactionOpen(t *testing.T) {
	db, plain := connectorDB(t)
	other := begin(t, plain)
	mustExec(t, other, "UPDATE t SET n = 1 WHERE id = 1")
	tx := begin(t, db)
	mustExec(t, tx, "SET innodb_lock_wait_timeout = 1")
	_, got := enlisted(t, tx)
	mustExec(t, tx, "INSERT INTO t VALUES (100, 0)")
	_, err := tx.Exec("UPDATE t SET n = 2 WHERE id = 1")
	requireMySQL(t, err, 1205)
	require.NoError(t, probe(t, tx).Err())
	require.NoError(t, tx.Commit())
	assert.Equal(t, outcomes{Committed}, *got)
	assert.True(t, exists(t, plain, 100))
}

func TestLockWaitTimeoutThatEndsTransactionIsFoundOut(t *testing.T) {
	config, err := mysql.ParseDSN(testservers.NewSQL(t, "--innodb-rollback-on-timeout=ON", "--innodb-lock-wait-timeout=1").Database(t))
	require.NoError(t, err)
	db, plain := openConnectorDB(t, config, true), openConnectorDB(t, config, false)
	mustExec(t, plain, "CREATE TABLE t (id INT PRIMARY KEY, n INT) ENGINE=InnoDB")
	mustExec(t, plain, "INSERT INTO t VALUES (1, 0)")
	other := begin(t, plain)
	mustExec(t, other, "UPDATE t SET n = 1 WHERE id = 1")
	tx := begin(t, db)
	mustExec(t, tx, "INSERT INTO t VALUES (100, 0)")
	_, err = tx.Exec("UPDATE t SET n = 2 WHERE id = 1")
	requireMySQL(t, err, 1205)
	assert.ErrorIs(t, probe(t, tx).Err(), processlog.ErrNoTransaction)
}

// With innodb_rollback_on_timeout=ON, a lock wait timeout ends the whole transaction. A statement that the connection
// sent after the timeout would commit by itself.
// Failure: F2
func TestNothingFollowsALockWaitThatEndedItsTransactionUnread(t *testing.T) {
	config, err := mysql.ParseDSN(testservers.NewSQL(t, "--innodb-rollback-on-timeout=ON", "--innodb-lock-wait-timeout=1").Database(t))
	require.NoError(t, err)
	config.MultiStatements = true
	plain := openConnectorDB(t, config, false)
	mustExec(t, plain, "CREATE TABLE t (id INT PRIMARY KEY, n INT, s VARCHAR(20)) ENGINE=InnoDB")
	mustExec(t, plain, "INSERT INTO t VALUES (1, 0, '')")
	mustExec(t, plain, "CREATE PROCEDURE waits() UPDATE t SET n = 2 WHERE id = 1")
	mustExec(t, plain, "CREATE PROCEDURE nothing() BEGIN END")
	other := begin(t, plain)
	mustExec(t, other, "UPDATE t SET n = 1 WHERE id = 1")
	for name, statements := range map[string][]string{
		"plain":                  {"UPDATE t SET n = 2 WHERE id = 1"},
		"semicolon in a literal": {"UPDATE t SET s = 'a;b' WHERE id = 1"},
		"several":                {"SELECT 1; UPDATE t SET n = 2 WHERE id = 1"},
		"procedure":              {"CALL waits()"},
		"after a procedure":      {"CALL nothing()", "UPDATE t SET n = 2 WHERE id = 1"},
		"executed comment":       {"/*!40000 UPDATE t SET n = 2 WHERE id = 1 */"},
		"autocommit=0":           {"SET autocommit=0", "UPDATE t SET n = 2 WHERE id = 1"},
	} {
		t.Run(name, func(t *testing.T) {
			tx := begin(t, openConnectorDB(t, config, true))
			w, got := enlisted(t, tx)
			mustExec(t, tx, "INSERT INTO t VALUES (100, 0, '')")
			last := len(statements) - 1
			for _, stmt := range statements[:last] {
				mustExec(t, tx, stmt)
			}
			_, err := tx.Exec(statements[last])
			requireMySQL(t, err, 1205)
			_, err = tx.Exec("INSERT INTO t VALUES (101, 0, '')")
			assert.ErrorIs(t, err, processlog.ErrNoTransaction)
			assert.ErrorIs(t, w.Err(), processlog.ErrNoTransaction)
			assert.NotContains(t, *got, Committed)
			require.ErrorIs(t, tx.Commit(), processlog.ErrNoTransaction)
			assert.False(t, exists(t, plain, 100))
			assert.False(t, exists(t, plain, 101))
		})
	}
}
