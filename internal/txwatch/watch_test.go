package txwatch

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

var (
	errDeadlockSeen = &mysql.MySQLError{Number: 1213}
	errTimeoutSeen  = &mysql.MySQLError{Number: 1205}
	errOther        = &mysql.MySQLError{Number: 1062}
)

// watchedFor returns a connection with an open transaction, in which an entry is enlisted.
func watchedFor() (*txWatch, *Tx, *outcomes) {
	t, got := new(txWatch), new(outcomes)
	t.afterBegin(nil)
	w := t.current()
	w.OnEnd(got.add)
	return t, w, got
}

func TestErrorsThatEndTheTransaction(t *testing.T) {
	for number, want := range map[uint16]txState{
		1020: txAborted, 1180: txAborted, 1206: txAborted, 1213: txAborted, 1402: txAborted, 1613: txAborted,
		1614: txAborted, 3101: txAborted, 1205: txDoubtful, 1062: txOpen, 1064: txOpen, 1317: txOpen,
	} {
		watch := txWatch{state: txOpen}
		watch.afterError(&mysql.MySQLError{Number: number})
		assert.Equal(t, want, watch.state, "after error %d", number)
	}
	watch := txWatch{state: txOpen}
	watch.afterError(mysql.ErrInvalidConn)
	assert.Equal(t, txOpen, watch.state, "a lost connection is decided by what ends the transaction")
}

func TestErrorsOutsideTransactionsLeaveNoTrace(t *testing.T) {
	var watch txWatch
	watch.afterError(errDeadlockSeen)
	watch.afterError(errTimeoutSeen)
	assert.Equal(t, txWatch{}, watch)
}

func TestAbortedTransactionStaysAbortedUntilItsEnd(t *testing.T) {
	watch, w, got := watchedFor()
	watch.afterError(errDeadlockSeen)
	watch.afterError(errTimeoutSeen)
	watch.afterStatement(sqlDoubt, "CALL p()", nil)
	assert.Equal(t, txAborted, watch.state)
	assert.ErrorIs(t, w.Err(), processlog.ErrTxAborted)
	require.ErrorIs(t, watch.refusal(), processlog.ErrTxAborted)
	assert.Equal(t, outcomes{RolledBack}, *got)
}

func TestNewTransactionAfterAnAbortedOneIsClean(t *testing.T) {
	for name, next := range map[string]func(*txWatch){
		"begin":     func(watch *txWatch) { watch.afterBegin(nil) },
		"DDL":       func(watch *txWatch) { watch.afterStatement(sqlDDL, "", nil); watch.afterBegin(nil) },
		"pool":      func(watch *txWatch) { watch.reset(); watch.afterBegin(nil) },
		"ROLLBACK":  func(watch *txWatch) { watch.afterStatement(sqlRollback, "", nil); watch.afterBegin(nil) },
		"AND CHAIN": func(watch *txWatch) { watch.afterStatement(sqlRollbackChain, "", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			warnings := collectWarnings(t)
			watch, _, got := watchedFor()
			watch.afterError(errDeadlockSeen)
			next(watch)
			assert.Equal(t, txOpen, watch.state)
			require.NoError(t, watch.refusal())
			require.NoError(t, watch.current().Err())
			assert.Equal(t, outcomes{RolledBack}, *got)
			assert.Empty(t, *warnings, "nothing was committed")
		})
	}
}

func TestRefusalNamesEveryReason(t *testing.T) {
	watch, w, _ := watchedFor()
	reason := errors.New("too long")
	w.Taint(reason)
	watch.afterError(errDeadlockSeen)
	for _, want := range []error{processlog.ErrNotRecorded, processlog.ErrTxAborted, reason} {
		require.ErrorIs(t, watch.refusal(), want)
	}
}

func TestDoubtfulTransactionEndsUnknown(t *testing.T) {
	for name, end := range map[string]func(*txWatch){
		"rolled back": func(watch *txWatch) { watch.end(watch.afterDrop()) },
		"ROLLBACK":    func(watch *txWatch) { watch.afterStatement(sqlRollback, "", nil) },
		"pool":        func(watch *txWatch) { watch.reset() },
		"begin":       func(watch *txWatch) { watch.afterBegin(nil) },
		"DDL":         func(watch *txWatch) { watch.afterStatement(sqlDDL, "", nil) },
		"proven":      func(watch *txWatch) { watch.proven(false) },
	} {
		t.Run(name, func(t *testing.T) {
			watch, _, got := watchedFor()
			watch.afterStatement(sqlDoubt, "CALL p()", nil)
			end(watch)
			assert.Equal(t, outcomes{Unknown}, *got)
		})
	}
}

func TestDetachedTransactionIsNotTakenForOpen(t *testing.T) {
	watch, w, got := watchedFor()
	watch.afterStatement(sqlXAEnd, "", nil)
	watch.afterStatement(sqlDoubt, "CALL p()", errOther)
	assert.Equal(t, txDetached, watch.state)
	assert.ErrorIs(t, w.Err(), processlog.ErrNoTransaction)
	assert.ErrorIs(t, watch.current().Err(), processlog.ErrNoTransaction)
	watch.afterBegin(nil)
	assert.Equal(t, outcomes{Unknown}, *got, "prepared, and for others to commit")
}

func TestEntryEnlistedWhileInDoubtTaintsTheCommit(t *testing.T) {
	watch := &txWatch{state: txDoubtful}
	w := watch.current()
	require.ErrorIs(t, w.Err(), processlog.ErrNoTransaction)
	w.Taint(w.Err())
	require.ErrorIs(t, watch.refusal(), processlog.ErrNotRecorded)
}

func TestEndedTransactionIsNeverOpenAgain(t *testing.T) {
	watch, w, _ := watchedFor()
	watch.end(Committed)
	w.suspend(nil)
	w.abort()
	assert.ErrorIs(t, w.Err(), processlog.ErrNoTransaction)
	assert.NotErrorIs(t, w.Err(), processlog.ErrTxAborted)
}

// An error that is not from a MySQL server leaves a doubt, because SQLite rolls back by itself after many kinds of
// errors. A broken connection leaves no doubt to ask about, because no further statement reaches its transaction.
func TestErrorOfAnotherKindOfServerIsADoubt(t *testing.T) {
	for err, doubt := range map[error]bool{
		errors.New("database or disk is full"): true,
		context.DeadlineExceeded:               true,
		driver.ErrBadConn:                      false,
		&mysql.MySQLError{Number: 1064}:        false,
	} {
		w := txWatch{state: txOpen, currentTx: new(Tx)}
		w.afterError(err)
		assert.Equal(t, doubt, w.mustKnow(), err)
	}
}

func TestProcedureThatSucceedsCostsItsCallersTransactionNothing(t *testing.T) {
	w := txWatch{state: txOpen, currentTx: new(Tx)}
	require.NoError(t, w.afterStatement(sqlDoubt, "CALL p()", nil))
	assert.False(t, w.mustKnow())
}
