package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/mysqlerr"
)

type codedError int

func (e codedError) Error() string { return fmt.Sprintf("error %d", int(e)) }
func (e codedError) Code() int     { return int(e) }

func TestSQLiteErrorsAreKnownByCodeAndByMessage(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want fault
	}{
		{nil, faultOther},
		{codedError(2067), faultDuplicate},
		{codedError(1555), faultDuplicate},
		{codedError(1299), faultOther}, // NOT NULL
		{codedError(5), faultBusy},
		{codedError(517), faultBusy}, // BUSY_SNAPSHOT
		{codedError(262), faultBusy}, // LOCKED_SHAREDCACHE
		{codedError(9), faultAborted},
		{codedError(778), faultAborted}, // IOERR_WRITE
		{codedError(13), faultAborted},
		{codedError(1), faultOther},
		{fmt.Errorf("wrapped: %w", codedError(2067)), faultDuplicate},
		{errors.New("UNIQUE constraint failed: common_process_log.idempotent_id"), faultDuplicate},
		{errors.New("database is locked"), faultBusy},
		{errors.New("sqlite3: database table is locked: common_process_log"), faultBusy},
		{errors.New("database schema is locked: main"), faultBusy},
		{errors.New("interrupted"), faultAborted},
		{errors.New("database or disk is full"), faultAborted},
		{errors.New("no such table: common_process_log"), faultNoTable},
		{context.Canceled, faultAborted},
		{context.DeadlineExceeded, faultAborted},
		{driver.ErrBadConn, faultUnreachable},
	} {
		assert.Equal(t, tc.want, sqliteFault(tc.err), "%v", tc.err)
	}
}

// TestErrorOfTheBusinessIsNotTakenForSQLites in internal/integration/sqlitetest covers errors that a driver returned.
func TestErrorOfNoDriverIsNotOfSQLitesCondition(t *testing.T) {
	for _, err := range []error{
		nil, errors.New("payment was interrupted by the customer"), errors.New("the vendor is out of memory"), errors.New("database is locked"),
		codedError(5), fmt.Errorf("vendor: %w", codedError(9)), errors.Join(errors.New("interrupted"), codedError(517)),
	} {
		assert.Equal(t, mysqlerr.Statement, sqliteBlame(err), "%v", err)
	}
	assert.Equal(t, mysqlerr.Doubtful, sqliteBlame(errors.Join(errors.New("pay"), fmt.Errorf("insert: %w", driver.ErrBadConn))))
}

// Every result code of SQLite must have a line in sqliteConditions. A driver without codes returns only a text, so
// every text in sqliteMessages must lead to such a code.
// Failure: F74
func TestEveryResultCodeOfSQLiteIsJudged(t *testing.T) {
	for code := 1; code <= 26; code++ {
		require.NotEmpty(t, sqliteConditions[code].reason, "%d", code)
	}
	for _, known := range sqliteMessages {
		require.Contains(t, sqliteConditions, known.code&sqlitePrimaryCodeOf, known.text)
		require.Equal(t, known.code, sqliteCode(errors.New("sqlite3: "+known.text+": orders")))
	}
}
