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
	for _, number := range []uint16{0, 1044, 1045, 1048, 1054, 1062, 1064, 1142, 1143, 1146, 1264, 1305, 1364, 1366, 1406, 1442, 1451, 1452, 1644, 3819, 4025, 65535} {
		assert.Equal(t, Statement, Blames(&mysql.MySQLError{Number: number}), "%d", number)
	}
	for _, err := range []error{nil, io.EOF, context.DeadlineExceeded, errors.New("Error 1040: too many connections"), mysql.ErrPktTooLarge} {
		assert.Equal(t, Statement, Blames(err), "%v", err)
	}
	for _, err := range []error{mysql.ErrInvalidConn, driver.ErrBadConn, fmt.Errorf("pay: %w", driver.ErrBadConn)} {
		assert.Equal(t, Doubtful, Blames(err), "%v", err)
	}
}

// TestTextOfTheServerTellsItsCausesApart checks error numbers that have several causes. Only the server's own text may
// decide which cause an error has. A text that a handler adds to the error must not count.
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
		{1114, "The table 'orders' is full", Server}, // a MEMORY table at max_heap_table_size
		{1114, "The table '/tmp/#sql-1_2' is full", Doubtful},
		{1114, "The table '(temporary)' is full", Doubtful}, // MariaDB 10.11, tmp_disk_table_size
		{1, `Can't create/write to file '/tmp/MYpDcLvl' (Errcode: 2 "No such file or directory")`, Doubtful},
		{1, "Can't create/write to file '/tmp/MYfgPCTB' (OS errno 28 - No space left on device)", Server},
		{1, `Can't create/write to file '/tmp/MYpDcLvl' (Errcode: 24 "Too many open files")`, Server},
		{3, `Error writing file '/tmp/#sql/fd=50' (Errcode: 28 "No space left on device")`, Server},
		{3, "Error writing file '/tmp/MLfd=25' (OS errno 28 - No space left on device)", Server}, // MySQL 9.7, an INSERT larger than binlog_cache_size
		{5, "Out of memory (Needed 1048576 bytes)", Doubtful},
		{28, `Got error '28 "No space left on device"' for '/tmp/#sql-temptable-781e-6-c.MAI'`, Server},
		{126, `Got error '126 "Index is corrupted"' for '/tmp/#sql-temptable-781e-6-d.MAI'`, Doubtful},
		{1017, `Can't find file: './shop/orders.frm' (errno: 23 "Too many open files in system")`, Server},
		{1033, "Incorrect information in file: './shop/orders.frm'", Doubtful},
		{1932, "Table 'shop.orders' doesn't exist in engine", Doubtful},
		{1598, "Binary logging not possible. Message: An error occurred during flush stage of the commit. 'binlog_error_action' is set to 'ABORT_SERVER'. Server is being stopped", Doubtful},
		{3185, "Can't find master key from keyring, please check in the server log if a keyring is loaded and initialized successfully.", Doubtful},
		{3799, "The Group Replication plugin is stopping, therefore new transactions are not allowed to start.", Server},
		{3796, "The option group_replication_consistency cannot be used on the current member state.", Server},
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
