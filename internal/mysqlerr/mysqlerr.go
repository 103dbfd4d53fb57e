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
	DuplicateKey       = 1062
	NoSuchTable        = 1146
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
)

// Number is the server's number for an error, 0 for one that no server has answered with.
func Number(err error) uint16 {
	if err == nil {
		return 0 // what follows allocates
	}
	var answer *mysql.MySQLError
	if !errors.As(err, &answer) {
		return 0
	}
	return answer.Number
}

// IsReadOnly reports whether the server takes no writes, as a former primary does after a switchover. It goes on
// answering reads, of what is soon out of date, so the connection must not be used again.
func IsReadOnly(err error) bool {
	switch Number(err) {
	case ReadOnlyTx, ReadOnly:
		return true
	case Prevented:
		return strings.Contains(err.Error(), "read-only") || strings.Contains(err.Error(), "read_only")
	}
	return false
}

// IsBroken reports whether the connection broke: nothing is known of what was sent.
func IsBroken(err error) bool {
	return errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn)
}

// IsInsideTransaction: the server refuses to say how a transaction begins, for one has begun.
func IsInsideTransaction(err error) bool { return Number(err) == Characteristics }
