// Package mysqlerr reads the errors of MySQL, MariaDB and servers that speak their protocol. It imports no package of
// this module.
package mysqlerr

import (
	"database/sql/driver"
	"errors"
	"strings"

	"github.com/go-sql-driver/mysql"
)

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
	Prevented          = 1290
	ReadOnlyTx         = 1792
	ReadOnly           = 1836
	Characteristics    = 1568 // SET TRANSACTION while a transaction is in progress
	RecordChanged      = 1020 // MariaDB: the row changed since this transaction's snapshot
	DuringCommit       = 1180
	BeforeCommit       = 3100 // a replication plugin, such as Group Replication, stopped the commit in its hook
	RolledBackOnCommit = 3101
	NoWait             = 3572
	ResolveLock        = 9004 // TiDB: a lock held by an open transaction
	NoSuchSavepoint    = 1305
	Interrupted        = 1317
	StatementTime      = 1969 // MariaDB: max_statement_time
	ExecutionTime      = 3024
	ConnectionKilled   = 1927 // MariaDB: KILL
	SessionKilled      = 3169
)

func answer(err error) *mysql.MySQLError {
	if err == nil {
		return nil
	}
	var serverErr *mysql.MySQLError
	if !errors.As(err, &serverErr) {
		return nil
	}
	return serverErr
}

// Number returns the server's number for an error. It returns 0 for an error that no server sent.
func Number(err error) uint16 {
	if serverErr := answer(err); serverErr != nil {
		return serverErr.Number
	}
	return 0
}

// IsReadOnly reports whether the server accepts no writes, like a former primary after a switchover. Such a server
// still answers reads, from data that is soon out of date.
func IsReadOnly(err error) bool {
	serverErr := answer(err)
	return serverErr != nil && (serverErr.Number == ReadOnlyTx || serverErr.Number == ReadOnly || preventsWrites(serverErr))
}

func preventsWrites(serverErr *mysql.MySQLError) bool {
	return serverErr.Number == Prevented && (strings.Contains(serverErr.Message, "read-only") || strings.Contains(serverErr.Message, "read_only"))
}

// IsServers reports whether an error may be caused by the condition of the server or of the connection.
func IsServers(err error) bool { return Blames(err) != Statement }

// IsBroken reports whether the connection broke. The effect of the last statement is then unknown.
func IsBroken(err error) bool {
	return errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn)
}

// IsInsideTransaction reports whether the server refused SET TRANSACTION because a transaction is open.
func IsInsideTransaction(err error) bool { return Number(err) == Characteristics }
