package compensator

import (
	"database/sql/driver"
	"errors"

	"github.com/go-sql-driver/mysql"
)

// commitOutcome is how a transaction ended.
type commitOutcome int

const (
	committed     commitOutcome = iota // durable
	rolledBack                         // never happened
	commitUnknown                      // either
)

func (o commitOutcome) String() string {
	switch o {
	case committed:
		return "committed"
	case rolledBack:
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

// classifyCommit tells from the error of a COMMIT what became of the transaction. What is not known to have
// rolled back is unknown: taking a commit for a rollback makes the caller do the business twice, taking it
// for unknown only makes it ask.
func classifyCommit(err error) commitOutcome {
	var answer *mysql.MySQLError
	switch {
	case err == nil:
		return committed
	case errors.As(err, &answer):
		if _, refused := commitRefusals[answer.Number]; refused {
			return rolledBack
		}
		return commitUnknown
	case errors.Is(err, driver.ErrBadConn):
		return rolledBack // by its contract: nothing was sent
	}
	return commitUnknown
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

// abortsTransaction tells whether the statement that failed with err took its transaction along; doubtful
// says that this depends on how the server is configured.
func abortsTransaction(err error) (aborts, doubtful bool) {
	var answer *mysql.MySQLError
	if !errors.As(err, &answer) {
		return false, false
	}
	_, aborts = statementAborts[answer.Number]
	return aborts, answer.Number == lockWaitTimeout
}

// lockWaitTimeout rolls back the statement, or the transaction under innodb_rollback_on_timeout.
const lockWaitTimeout = 1205
