package chaos

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/proof/chaos/history"
)

func TestErrorsHaveTheirClass(t *testing.T) {
	server := func(n uint16) error { return fmt.Errorf("wrapped: %w", &mysql.MySQLError{Number: n}) }
	for err, want := range map[error]string{
		server(1213): history.ErrDeadlock, server(1020): history.ErrDeadlock, server(1205): history.ErrLockWait, server(1290): history.ErrReadOnly,
		fmt.Errorf("%w: %w", compensator.ErrTxAborted, server(1213)): history.ErrDeadlock,
		compensator.ErrTxAborted:                                     history.ErrTxAborted,
		compensator.ErrNoTransaction:                                 history.ErrNoTransaction,
		compensator.ErrNotRecorded:                                   history.ErrNotRecorded,
		compensator.ErrBusy:                                          history.ErrBusy,
		compensator.ErrNotFound:                                      history.ErrNotFound,
		&compensator.StateError{}:                                    history.ErrState,
		mysql.ErrInvalidConn:                                         history.ErrConnection,
		driver.ErrBadConn:                                            history.ErrConnection,
		context.DeadlineExceeded:                                     history.ErrContext,
		errors.New("?"):                                              history.ErrOther,
	} {
		class, detail := classOf(err)
		require.Equal(t, want, class, "%v", err)
		require.Equal(t, err.Error(), detail)
	}
	class, detail := classOf(nil)
	require.Empty(t, class+detail)
}

func TestOnlyWhatCertainlyDidNotHappenIsAFailedCommit(t *testing.T) {
	require.Equal(t, history.CommitOK, outcomeOfCommit(nil))
	for _, err := range []error{driver.ErrBadConn, compensator.ErrTxAborted, compensator.ErrNotRecorded, &mysql.MySQLError{Number: 1213}, &mysql.MySQLError{Number: 1290}} {
		require.Equal(t, history.CommitFail, outcomeOfCommit(err), "%v", err)
	}
	for _, err := range []error{
		mysql.ErrInvalidConn, compensator.ErrCommitUnknown, fmt.Errorf("%w: %w", compensator.ErrCommitUnknown, driver.ErrBadConn),
		&mysql.MySQLError{Number: 1180}, context.DeadlineExceeded, errors.New("?"),
	} {
		require.Equal(t, history.CommitUnknown, outcomeOfCommit(err), "%v", err)
	}
}
