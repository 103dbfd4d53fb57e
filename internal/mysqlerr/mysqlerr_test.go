package mysqlerr

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Failure: F74
func TestServersConditionIsToldFromTheStatementsFault(t *testing.T) {
	for number, c := range conditions {
		err := &mysql.MySQLError{Number: number, Message: c.reason}
		require.NotEmpty(t, c.reason, "%d", number)
		for _, dressed := range []error{err, fmt.Errorf("pay: %w", err), errors.Join(errors.New("pay"), fmt.Errorf("insert: %w", err))} {
			assert.Equal(t, c.blame, Blames(dressed), "%d: %s", number, c.reason)
			assert.Equal(t, c.blame != Statement, IsServers(dressed), "%d: %s", number, c.reason)
		}
	}
	// These are a constraint, a syntax error, a missing right, a missing table, a trigger, and errors that no server
	// sent.
	for _, number := range []uint16{0, 1, 1044, 1045, 1048, 1054, 1062, 1064, 1142, 1143, 1146, 1264, 1305, 1364, 1366, 1406, 1442, 1451, 1452, 1644, 3819, 4025, 65535} {
		assert.Equal(t, Statement, Blames(&mysql.MySQLError{Number: number}), "%d", number)
	}
	for _, err := range []error{nil, io.EOF, context.DeadlineExceeded, errors.New("Error 1040: too many connections"), mysql.ErrPktTooLarge} {
		assert.Equal(t, Statement, Blames(err), "%v", err)
	}
	for _, err := range []error{mysql.ErrInvalidConn, driver.ErrBadConn, fmt.Errorf("pay: %w", driver.ErrBadConn)} {
		assert.Equal(t, Doubtful, Blames(err), "%v", err)
	}
}

// If one error number has several causes, the server's own text must decide. The text that a handler adds to the error
// must not.
// Failure: F74
func TestTextOfTheServerTellsItsCausesApart(t *testing.T) {
	for _, tc := range []struct {
		number uint16
		text   string
		want   Blame
	}{
		{1290, "The MariaDB server is running with the --read-only option so it cannot execute this statement", Server},
		{1290, "The MySQL server is running with the --super-read-only option so it cannot execute this statement", Server},
		{1290, "The MySQL server is running with the --secure-file-priv option so it cannot execute this statement", Statement},
		{1114, "The table 'orders' is full", Server},
		{1114, "The table '/tmp/#sql-1_2' is full", Doubtful},
		{1026, `Error writing file 'binlog.000007' (errno: 28 "No space left on device")`, Server},
		{1026, `Error writing file 'binlog.000007' (Errcode: 28 - No space left on device)`, Server},
		{1030, `Got error 28 "No space left on device" from storage engine InnoDB`, Server},
		{1030, "Got error 28 - 'No space left on device' from storage engine", Server},
		{1030, "Got error 168 - 'Unknown (generic) error from engine' from storage engine", Doubtful},
		{1016, `Can't open file: './shop/orders.ibd' (errno: 24 "Too many open files")`, Server},
		{1016, `Can't open file: './shop/orders.ibd' (errno: 2 "No such file or directory")`, Doubtful},
		{1205, "No space left on device", Doubtful},
	} {
		assert.Equal(t, tc.want, Blames(fmt.Errorf("No space left on device, #sql, read-only: %w", &mysql.MySQLError{Number: tc.number, Message: tc.text})), "%d %s", tc.number, tc.text)
	}
	assert.False(t, IsReadOnly(fmt.Errorf("read-only: %w", &mysql.MySQLError{Number: 1290, Message: "running with the --secure-file-priv option"})))
}
