package txwatch

import (
	"database/sql/driver"
	"errors"
	"reflect"
	"strings"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/processlog"
)

// Outcome is how a transaction ended.
type Outcome int

const (
	Committed  Outcome = iota // durable
	RolledBack                // never happened
	Unknown                   // either
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

// commitRefusals are the errors by which a server says that COMMIT rolled the transaction back. Only numbers
// whose every source does so belong here; 1180, for one, also reports an engine that failed halfway.
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

// Classify tells from the error of a COMMIT what became of the transaction. What is not known to have
// rolled back is unknown: taking a commit for a rollback makes the caller do the business twice, taking it
// for unknown only makes it ask.
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
		return RolledBack // by its contract: nothing was sent
	}
	return Unknown
}

// lostAgainstOthers are the errors of a transaction that was in the way of others, or they in its: the same one, begun
// again, may well get through.
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

// Retryable tells whether the transaction that err has ended may be begun again as a whole; see the root's.
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
	// SQLite's drivers agree on the words alone.
	said := SQLiteAnswer(err)
	return said != nil && (strings.Contains(said.Error(), "database is locked") || strings.Contains(said.Error(), "table is locked"))
}

// SQLiteAnswer returns the error in the tree of err that is of a SQLite driver's own type, or nil. So the words of a business are not
// taken for SQLite's. This package imports no driver, but each has SQLite in its path.
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
			if said := SQLiteAnswer(one); said != nil {
				return said
			}
		}
	}
	return nil
}

// statementAborts are the errors of a statement after which the server has rolled the whole transaction
// back, although the client was not told so and its handle looks open.
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

// Aborts tells whether the statement that failed with err took its transaction along; doubtful
// says that this depends on how the server is configured, or that it is no server of MySQL's kind. A connection that
// broke tells nothing, and there is nobody to ask.
func Aborts(err error) (aborts, doubtful bool) {
	number := mysqlerr.Number(err)
	if number == 0 {
		return false, !mysqlerr.IsBroken(err) // SQLite's, perhaps, which goes back on several
	}
	_, aborts = statementAborts[number]
	return aborts, number == mysqlerr.LockWaitTimeout // the statement, or the transaction under innodb_rollback_on_timeout
}
