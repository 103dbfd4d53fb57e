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

// Those of a server that has come to its limits, or is being stopped, or has ended the session.
const (
	diskFull           = 1021
	outOfMemory        = 1037
	tooManyConnections = 1040
	notInCluster       = 1047 // Galera
	shutdown           = 1053
	tableFull          = 1114
	aborted            = 1152
	tooManyOfUser      = 1203
	lockTableFull      = 1206
	userLimit          = 1226
	interrupted        = 1317 // KILL QUERY
	killed             = 1927 // MariaDB
	sessionKilled      = 3169
	idleTooLong        = 4031
	timestampTimeout   = 9001 // TiDB's, as all that follow: its PD does not answer
	storageTimeout     = 9002
	storageBusy        = 9003
	regionUnavailable  = 9005
	schemaOld          = 8027
	schemaChanged      = 8028 // since the transaction began
	lockConflict       = 8002 // a SELECT FOR UPDATE that cannot be tried again by itself
	writeConflict      = 8005 // of an optimistic transaction
	commitFailed       = 8022 // rolled back, safe to try again
	storageConflict    = 9007
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

// IsServers reports whether an error is of the condition the server, or the way to it, is in, and not of the statement: the
// same statement may well succeed later on.
func IsServers(err error) bool {
	switch Number(err) {
	case 0:
		return IsBroken(err)
	case LockWaitTimeout, NoWait, ResolveLock, Deadlock, RecordChanged, DuringCommit, BeforeCommit, RolledBackOnCommit:
		return true
	case diskFull, tableFull, outOfMemory, lockTableFull, tooManyConnections, tooManyOfUser, userLimit:
		return true
	case timestampTimeout, schemaOld, schemaChanged, lockConflict, writeConflict, commitFailed, storageConflict:
		return true
	case shutdown, aborted, interrupted, killed, sessionKilled, idleTooLong, notInCluster, storageTimeout, storageBusy, regionUnavailable:
		return true
	}
	return IsReadOnly(err)
}

// IsBroken reports whether the connection broke: nothing is known of what was sent.
func IsBroken(err error) bool {
	return errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn)
}

// IsInsideTransaction: the server refuses to say how a transaction begins, for one has begun.
func IsInsideTransaction(err error) bool { return Number(err) == Characteristics }
