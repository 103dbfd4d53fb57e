package txwatch

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

func TestWhatMayBeRunAgainIsToldFromWhatIsWrongAndWhatIsUnknown(t *testing.T) {
	answer := func(number uint16) error { return fmt.Errorf("place order: %w", &mysql.MySQLError{Number: number}) }
	for _, err := range []error{
		processlog.ErrTxAborted, processlog.ErrBusy, fmt.Errorf("pay: %w", processlog.ErrTxAborted),
		answer(1020), answer(1205), answer(1213), answer(1614), answer(3101), answer(3572), answer(8002), answer(8005), answer(8022), answer(8028), answer(9004), answer(9007),
		fmt.Errorf("%w: %w", processlog.ErrNotRecorded, answer(1213)),
	} {
		assert.True(t, Retryable(err), "%v", err)
	}
	for _, err := range []error{
		nil, processlog.ErrCommitUnknown, fmt.Errorf("%w: %w", processlog.ErrCommitUnknown, answer(1213)), processlog.ErrNoTransaction, processlog.ErrNotRecorded,
		processlog.ErrHistoryLost, &processlog.FieldError{Field: "content"}, &processlog.StateError{}, answer(1062), answer(1064), answer(1406), answer(1290), answer(8004),
		driver.ErrBadConn, mysql.ErrInvalidConn, context.Canceled, context.DeadlineExceeded, io.EOF, errors.New("sold out"),
		// These errors only look like errors of SQLite. TestBeginHoldsTheWriteLockFromTheOutset tests errors of a
		// SQLite driver.
		errors.New("the partner says: table is locked"), errors.New("database is locked (5) (SQLITE_BUSY)"),
	} {
		assert.False(t, Retryable(err), "%v", err)
	}
}

// Failure: F19
func TestClassifyCommit(t *testing.T) {
	answer := func(number uint16) error { return &mysql.MySQLError{Number: number} }
	for _, test := range []struct {
		err  error
		want Outcome
	}{
		{nil, Committed},
		{answer(1213), RolledBack}, // Galera certification
		{answer(1020), RolledBack},
		{answer(3100), RolledBack}, // an error of Group Replication
		{answer(3101), RolledBack},
		{answer(8002), RolledBack}, // the error of Galera's certification
		{answer(8005), RolledBack},
		{answer(8022), RolledBack},
		{answer(8028), RolledBack},
		{answer(9007), RolledBack},
		{answer(9001), Unknown}, // TiDB's PD or its storage did not answer, so the commit may have been written
		{answer(9002), Unknown},
		{answer(9005), Unknown},
		{answer(1290), RolledBack},
		{answer(1062), RolledBack},
		{fmt.Errorf("wrapped: %w", answer(1213)), RolledBack},
		{driver.ErrBadConn, RolledBack}, // nothing was sent to the server
		{answer(1317), Unknown},         // the statement was interrupted
		{answer(1053), Unknown},         // the server is shutting down
		{answer(1927), Unknown},         // the connection was killed
		{answer(2013), Unknown},
		{answer(1180), Unknown},
		{answer(1105), Unknown},
		{answer(65535), Unknown},
		{mysql.ErrInvalidConn, Unknown},
		{mysql.ErrMalformPkt, Unknown},
		{io.ErrUnexpectedEOF, Unknown},
		{context.DeadlineExceeded, Unknown},
		{sql.ErrTxDone, Unknown},
		{errors.New("who knows"), Unknown},
	} {
		assert.Equal(t, test.want, Classify(test.err), "%v", test.err)
	}
}

// brokenDB returns a proxy, a watched handle through the proxy, and a plain handle past it.
func brokenDB(t *testing.T, params ...string) (*faultproxy.MySQL, *sql.DB, *sql.DB) {
	config, err := mysql.ParseDSN(testservers.SharedSQL(t).Database(t, params...))
	require.NoError(t, err)
	config.Logger = &mysql.NopLogger{}
	plain := openConnectorDB(t, config, false)
	mustExec(t, plain, "CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB")
	proxy, err := faultproxy.NewMySQL(config.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
	config = config.Clone()
	config.Addr = proxy.Addr()
	return proxy, openConnectorDB(t, config, true), plain
}

func TestConnectionLostAroundCommitIsUnknown(t *testing.T) {
	for name, test := range map[string]struct {
		rule    faultproxy.Rule
		text    bool
		present bool
	}{
		"request lost":             {rule: faultproxy.Rule{Fault: faultproxy.DropRequest}},
		"reply lost":               {rule: faultproxy.Rule{Fault: faultproxy.DropReply}, present: true},
		"reply never comes":        {rule: faultproxy.Rule{Fault: faultproxy.DropReply, Hang: true}, present: true},
		"reply lost, sent as text": {rule: faultproxy.Rule{Fault: faultproxy.DropReply}, text: true, present: true},
	} {
		t.Run(name, func(t *testing.T) {
			proxy, db, plain := brokenDB(t, "readTimeout=4s")
			test.rule.Match = faultproxy.Commit()
			trap := proxy.Arm(test.rule)
			begun, commit := beginEitherWay(t, db, test.text)
			_, got := enlisted(t, begun)
			mustExec(t, begun, "INSERT INTO t VALUES (?, 0)", 100)
			err := commit()
			require.ErrorIs(t, err, processlog.ErrCommitUnknown)
			require.ErrorIs(t, err, mysql.ErrInvalidConn)
			assert.Equal(t, outcomes{Unknown}, *got)
			assert.Equal(t, 1, trap.Fired())
			assert.Equal(t, test.present, exists(t, plain, 100))
		})
	}
}

func beginEitherWay(t *testing.T, db *sql.DB, text bool) (connectorHandle, func() error) {
	if !text {
		tx := begin(t, db)
		return tx, tx.Commit
	}
	conn := connection(t, db)
	mustExec(t, conn, "BEGIN")
	return conn, func() error {
		_, err := conn.ExecContext(t.Context(), "COMMIT")
		return err
	}
}

func TestLostCommitWithoutEntriesKeepsTheDriversError(t *testing.T) {
	proxy, db, _ := brokenDB(t)
	proxy.Arm(faultproxy.Rule{Match: faultproxy.Commit(), Fault: faultproxy.DropReply})
	tx := begin(t, db)
	mustExec(t, tx, "INSERT INTO t VALUES (100, 0)")
	assert.True(t, tx.Commit() == mysql.ErrInvalidConn)
	assert.Zero(t, db.Stats().OpenConnections, "a broken connection went back to the pool")
}

func TestConnectionLostBeforeRollbackRollsBack(t *testing.T) {
	proxy, db, plain := brokenDB(t)
	proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("INSERT"), Fault: faultproxy.DropReply})
	tx := begin(t, db)
	_, got := enlisted(t, tx)
	_, err := tx.Exec("INSERT INTO t VALUES (100, 0)")
	require.Error(t, err)
	assert.Empty(t, *got, "only its end decides")
	require.Error(t, tx.Rollback())
	assert.Equal(t, outcomes{RolledBack}, *got)
	assert.False(t, exists(t, plain, 100))
}

func TestRefusedCommitWhoseRollbackIsLostGivesUpTheConnection(t *testing.T) {
	proxy, db, plain := brokenDB(t)
	proxy.Arm(faultproxy.Rule{Match: faultproxy.Statement("ROLLBACK"), Fault: faultproxy.DropRequest})
	tx := begin(t, db)
	mustExec(t, tx, "INSERT INTO t VALUES (100, 0)")
	w, got := enlisted(t, tx)
	w.Taint(errors.New("not written"))
	err := tx.Commit()
	require.ErrorIs(t, err, processlog.ErrNotRecorded)
	require.ErrorIs(t, err, mysql.ErrInvalidConn)
	assert.Equal(t, outcomes{RolledBack}, *got)
	require.NoError(t, db.Ping())
	assert.False(t, exists(t, plain, 100))
}

// An error that ends the transaction must not count as the handler's failure.
func TestWhatEndsATransactionIsTheServersCondition(t *testing.T) {
	for _, table := range []map[uint16]string{lostAgainstOthers, statementAborts} {
		for number, why := range table {
			require.True(t, mysqlerr.IsServers(&mysql.MySQLError{Number: number}), "%d: %s", number, why)
		}
	}
}
