package txwatch

import (
	"database/sql/driver"
	"errors"
	"reflect"
	"strings"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/processlog"
)

// Outcome says how a transaction ended.
type Outcome int

const (
	Committed  Outcome = iota // the changes of the transaction are stored
	RolledBack                // the transaction has no effect
	Unknown                   // the transaction was either committed or rolled back
)

func (o Outcome) String() string {
	switch o {
	case Committed:
		return "committed"
	case RolledBack:
		return "rolled back"
	}
	return "unknown"
}

// commitRefusals lists the errors of COMMIT that always mean a rollback. The error 1180 is missing, because it also
// reports a storage engine that failed in the middle of its commit.
var commitRefusals = map[uint16]string{
	1020: "record changed since the snapshot (MariaDB)",
	1062: "duplicate key, checked at commit (TiDB)",
	1205: "commit waited too long for the global read lock",
	1213: "deadlock; failed certification (Galera)",
	1290: "the server became read-only",
	1402: "transaction branch was rolled back",
	1613: "transaction branch was rolled back: timeout",
	1614: "transaction branch was rolled back: deadlock",
	1792: "read-only transaction",
	1836: "the server became read-only",
	3100: "a replication hook refused (Group Replication)",
	3101: "failed certification (Group Replication)",
	8002: "write conflict, cannot retry (TiDB)",
	8004: "transaction too large (TiDB)",
	8005: "write conflict (TiDB)",
	8022: "commit failed, safe to retry (TiDB)",
	8028: "schema changed (TiDB)",
	9007: "write conflict (TiDB)",
}

// Classify returns the outcome of a transaction from the error of its COMMIT. nil means Committed. An error that proves
// a rollback means RolledBack, and any other error means Unknown. The proof is necessary, because after RolledBack a
// caller may do the business change again.
func Classify(err error) Outcome {
	number := mysqlerr.Number(err)
	switch {
	case err == nil:
		return Committed
	case number != 0:
		if _, refused := commitRefusals[number]; refused {
			return RolledBack
		}
		return Unknown
	case errors.Is(err, driver.ErrBadConn):
		return RolledBack // A driver returns ErrBadConn only if it has sent nothing.
	}
	return Unknown
}

// lostAgainstOthers lists conflicts with another transaction. A second try of the transaction may succeed.
var lostAgainstOthers = map[uint16]string{
	1020: "record changed since the snapshot (MariaDB)",
	1205: "lock wait timeout",
	1213: "deadlock; failed certification (Galera)",
	1614: "transaction branch was rolled back: deadlock",
	3101: "failed certification (Group Replication)",
	3572: "NOWAIT found a lock",
	8002: "write conflict, cannot retry by itself (TiDB)",
	8005: "write conflict (TiDB)",
	8022: "commit failed, safe to retry (TiDB)",
	8028: "schema changed (TiDB)",
	9004: "lock of a transaction in flight (TiDB)",
	9007: "write conflict (TiDB)",
}

// Retryable reports whether a transaction that ended with err may be run again as a whole.
func Retryable(err error) bool {
	switch {
	case err == nil, errors.Is(err, processlog.ErrCommitUnknown):
		return false
	case errors.Is(err, processlog.ErrTxAborted), errors.Is(err, processlog.ErrBusy):
		return true
	}
	if number := mysqlerr.Number(err); number != 0 {
		return lostAgainstOthers[number] != ""
	}
	// SQLite's drivers have only the error text in common.
	serverErr := SQLiteAnswer(err)
	return serverErr != nil && (strings.Contains(serverErr.Error(), "database is locked") || strings.Contains(serverErr.Error(), "table is locked"))
}

// SQLiteAnswer returns the error in the tree of err whose type belongs to a SQLite driver, or nil. The import path of such
// a type contains "sqlite". This package imports no driver.
func SQLiteAnswer(err error) error {
	if err == nil {
		return nil
	}
	of := reflect.TypeOf(err)
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if strings.Contains(of.PkgPath(), "sqlite") {
		return err
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		return SQLiteAnswer(err.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range err.Unwrap() {
			if serverErr := SQLiteAnswer(one); serverErr != nil {
				return serverErr
			}
		}
	}
	return nil
}

// statementAborts lists errors with which the server rolls the whole transaction back, although its handle still looks
// open.
var statementAborts = map[uint16]string{
	1020: "record changed since the snapshot (MariaDB)",
	1180: "error during commit",
	1206: "lock table full",
	1213: "deadlock",
	1402: "transaction branch was rolled back",
	1613: "transaction branch was rolled back: timeout",
	1614: "transaction branch was rolled back: deadlock",
	3101: "failed certification (Group Replication)",
}

// Aborts reports whether a failed statement rolled its whole transaction back. The result doubtful is true in two
// cases: the answer depends on the server's configuration, or the error is not from a MySQL server. After a broken
// connection no further statement can reach the transaction, so both results are false.
func Aborts(err error) (aborts, doubtful bool) {
	number := mysqlerr.Number(err)
	if number == 0 {
		// An error without a number may be from SQLite. Some kinds of errors of SQLite roll the transaction back, for
		// example SQLITE_FULL.
		return false, !mysqlerr.IsBroken(err)
	}
	_, aborts = statementAborts[number]
	return aborts, number == mysqlerr.LockWaitTimeout // Only with innodb_rollback_on_timeout does 1205 roll back the transaction.
}
