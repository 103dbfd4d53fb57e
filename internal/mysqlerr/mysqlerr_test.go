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
)

func TestServersConditionIsToldFromTheStatementsFault(t *testing.T) {
	servers := map[string][]uint16{
		"locks, and transactions that lost against others":         {1205, 3572, 1213, 1020, 1180, 3100, 3101},
		"a server at its limits":                                   {1021, 1037, 1040, 1114, 1203, 1206, 1226},
		"a server that stops, or has ended the session":            {1053, 1152, 1317, 1927, 3169, 4031, 1047},
		"one that takes no writes":                                 {1792, 1836},
		"TiDB: its parts do not answer":                            {9001, 9002, 9003, 9005},
		"TiDB: what another transaction holds, or was faster with": {9004, 9007, 8002, 8005, 8022},
		"TiDB: the schema has changed meanwhile":                   {8027, 8028},
	}
	for what, numbers := range servers {
		for _, number := range numbers {
			assert.True(t, IsServers(fmt.Errorf("wrapped: %w", &mysql.MySQLError{Number: number})), "%s: %d", what, number)
		}
	}
	// Too large, a constraint, a syntax, a right, no table; TiDB's transaction that is too large, or older than its GC lets it be.
	for _, number := range []uint16{1048, 1062, 1064, 1142, 1146, 1153, 1305, 1406, 1452, 8004, 9006, 65535} {
		assert.False(t, IsServers(&mysql.MySQLError{Number: number}), "%d", number)
	}
	for _, err := range []error{mysql.ErrInvalidConn, driver.ErrBadConn} {
		assert.True(t, IsServers(err), "%v", err)
	}
	for _, err := range []error{nil, io.EOF, context.DeadlineExceeded, errors.New("any")} {
		assert.False(t, IsServers(err), "%v", err)
	}
	assert.True(t, IsServers(&mysql.MySQLError{Number: 1290, Message: "running with the --super-read-only option"}))
	assert.False(t, IsServers(&mysql.MySQLError{Number: 1290, Message: "running with the --secure-file-priv option"}))
}
