package chaos

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"

	"github.com/go-sql-driver/mysql"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/proof/chaos/history"
)

func classOf(err error) (class, detail string) {
	if err == nil {
		return "", ""
	}
	return errorClass(err), err.Error()
}

func errorClass(err error) string {
	var state *compensator.StateError
	var network net.Error
	switch {
	case errors.As(err, &state):
		return history.ErrState
	case errors.Is(err, compensator.ErrNotFound):
		return history.ErrNotFound
	case isServerError(err, 1213, 1020):
		return history.ErrDeadlock
	case isServerError(err, 1205):
		return history.ErrLockWait
	case isServerError(err, 1290, 1792, 1836):
		return history.ErrReadOnly
	case errors.Is(err, compensator.ErrBusy):
		return history.ErrBusy
	case errors.Is(err, compensator.ErrTxAborted):
		return history.ErrTxAborted
	case errors.Is(err, compensator.ErrNoTransaction):
		return history.ErrNoTransaction
	case errors.Is(err, compensator.ErrNotRecorded):
		return history.ErrNotRecorded
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return history.ErrContext
	case errors.Is(err, mysql.ErrInvalidConn), errors.Is(err, driver.ErrBadConn), errors.Is(err, io.EOF), errors.Is(err, sql.ErrTxDone), errors.As(err, &network):
		return history.ErrConnection
	}
	return history.ErrOther
}

// outcomeOfCommit classifies the error of a COMMIT: committed, certainly not committed (CommitFail), or
// unknown.
func outcomeOfCommit(err error) string {
	switch {
	case err == nil:
		return history.CommitOK
	case errors.Is(err, compensator.ErrCommitUnknown):
		return history.CommitUnknown
	case errors.Is(err, compensator.ErrTxAborted), errors.Is(err, compensator.ErrNotRecorded), errors.Is(err, driver.ErrBadConn),
		isServerError(err, 1205, 1213, 1290, 1836, 1792, 1020):
		return history.CommitFail
	}
	return history.CommitUnknown
}
