// Package mysqlerr reads the errors of MySQL, MariaDB and what speaks like them. A leaf.
package mysqlerr

import (
	"database/sql/driver"
	"errors"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// Server errors by number.
const (
	BadNull            = 1048
	OutOfRange         = 1690
	DuplicateKey       = 1062
	TableDenied        = 1142
	ColumnDenied       = 1143
	NoSuchTable        = 1146
	Syntax             = 1064
	LockWaitTimeout    = 1205
	Deadlock           = 1213
	Prevented          = 1290 // by an option: --read-only, --super-read-only, or another
	ReadOnlyTx         = 1792
	ReadOnly           = 1836
	Characteristics    = 1568 // SET TRANSACTION while a transaction is in progress
	RecordChanged      = 1020 // MariaDB: the row changed since this transaction's snapshot
	DuringCommit       = 1180
	BeforeCommit       = 3100 // Group Replication, in the commit hook
	RolledBackOnCommit = 3101
	NoWait             = 3572
	ResolveLock        = 9004 // TiDB: a lock held by a transaction in flight
	NoSuchSavepoint    = 1305
	Interrupted        = 1317 // KILL QUERY
	StatementTime      = 1969 // MariaDB: max_statement_time
	ExecutionTime      = 3024 // MySQL: max_execution_time
)

// answer is what a server has answered with, nil if err is none of a server's.
func answer(err error) *mysql.MySQLError {
	if err == nil {
		return nil // what follows allocates
	}
	var answer *mysql.MySQLError
	if !errors.As(err, &answer) {
		return nil
	}
	return answer
}

// Number returns the server's number for an error, 0 for an error that no server has answered with.
func Number(err error) uint16 {
	if answer := answer(err); answer != nil {
		return answer.Number
	}
	return 0
}

// IsReadOnly reports whether the server takes no writes, as a former primary does after a switchover. Such a server still
// answers reads, from data that is soon out of date, so the connection must not be used again.
func IsReadOnly(err error) bool {
	answer := answer(err)
	return answer != nil && (answer.Number == ReadOnlyTx || answer.Number == ReadOnly || preventsWrites(answer))
}

// preventsWrites reports whether an option of the server prevents every write, and not one statement.
func preventsWrites(answer *mysql.MySQLError) bool {
	return answer.Number == Prevented && (strings.Contains(answer.Message, "read-only") || strings.Contains(answer.Message, "read_only"))
}

// IsServers reports whether an error is, or may be, a condition of the server or of the way to it: the same statement may well
// succeed later.
func IsServers(err error) bool { return Blames(err) != Statement }

// IsBroken reports whether the connection broke: nothing is known of what was sent.
func IsBroken(err error) bool {
	return errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn)
}

// IsInsideTransaction: the server refuses to say how a transaction begins, for one has begun.
func IsInsideTransaction(err error) bool { return Number(err) == Characteristics }
