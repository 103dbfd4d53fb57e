package sqlstore

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/internal/txwatch"
)

// If a statement fails with faultBusy, the store repeats the statement in the same transaction. So an error of this
// kind must not abort the transaction: see txwatch.Aborts.
func FuzzFaults(f *testing.F) {
	for _, number := range []uint16{0, 1, mysqlerr.BadNull, mysqlerr.DuplicateKey, mysqlerr.LockWaitTimeout, mysqlerr.Deadlock, mysqlerr.RecordChanged, mysqlerr.NoWait, 65535} {
		f.Add(number, "message")
	}
	f.Fuzz(func(t *testing.T, number uint16, message string) {
		bare := &mysql.MySQLError{Number: number, Message: message}
		dressed := fmt.Errorf("%q: %w", message, errors.Join(errors.New("before"), bare))
		require.Equal(t, mysqlFault(bare), mysqlFault(dressed))
		require.NotEqual(t, faultUnreachable, mysqlFault(dressed), "the server has answered")
		if aborts, _ := txwatch.Aborts(dressed); mysqlFault(dressed) == faultBusy {
			require.False(t, aborts, "a statement that only waited in vain is tried again in the same transaction")
		}
		for _, broken := range []error{mysql.ErrInvalidConn, driver.ErrBadConn} {
			require.Equal(t, faultUnreachable, mysqlFault(fmt.Errorf("%s: %w", message, broken)))
		}
		require.Equal(t, faultOther, mysqlFault(fmt.Errorf("%s: %w", message, io.EOF)))
	})
}
