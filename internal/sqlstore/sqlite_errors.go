package sqlstore

import (
	"database/sql/driver"
	"errors"
	"slices"
	"strings"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/internal/txwatch"
)

const (
	sqliteError         = 1
	sqliteAbort         = 4
	sqliteBusy          = 5
	sqliteLocked        = 6
	sqliteNoMemory      = 7
	sqliteReadOnly      = 8
	sqliteInterrupt     = 9
	sqliteIO            = 10
	sqliteCorrupt       = 11
	sqliteFull          = 13
	sqliteCannotOpen    = 14
	sqliteProtocol      = 15
	sqliteSchema        = 17
	sqliteConstraint    = 19
	sqliteNotADatabase  = 26
	sqlitePrimaryKey    = 1555
	sqliteUnique        = 2067
	sqlitePrimaryCodeOf = 0xff
)

type sqliteCondition struct {
	blame  mysqlerr.Blame
	reason string
}

// sqliteConditions lists every primary result code of an error, as in https://sqlite.org/rescode.html. An extended code
// counts as the primary code in its lower byte.
var sqliteConditions = map[int]sqliteCondition{
	sqliteError:        {mysqlerr.Statement, "ERROR: the statement is wrong"},
	2:                  {mysqlerr.Doubtful, "INTERNAL: a fault of SQLite or of the driver"},
	3:                  {mysqlerr.Doubtful, "PERM: access to the new database was denied"},
	sqliteAbort:        {mysqlerr.Doubtful, "ABORT: another statement rolled the transaction back"},
	sqliteBusy:         {mysqlerr.Doubtful, "BUSY: another connection writes, possibly one of the same handler"},
	sqliteLocked:       {mysqlerr.Doubtful, "LOCKED: as BUSY, within one shared cache"},
	sqliteNoMemory:     {mysqlerr.Doubtful, "NOMEM: a statement may ask for more than there ever is"},
	sqliteReadOnly:     {mysqlerr.Server, "READONLY: the file, its directory or its log cannot be written"},
	sqliteInterrupt:    {mysqlerr.Doubtful, "INTERRUPT"},
	sqliteIO:           {mysqlerr.Server, "IOERR: the disk or the file system"},
	sqliteCorrupt:      {mysqlerr.Doubtful, "CORRUPT: a person must repair it, at an unknown time"},
	12:                 {mysqlerr.Statement, "NOTFOUND: an unknown operation"},
	sqliteFull:         {mysqlerr.Server, "FULL: the disk, or max_page_count"},
	sqliteCannotOpen:   {mysqlerr.Server, "CANTOPEN: the file, its log or a temporary file; too many files are open"},
	sqliteProtocol:     {mysqlerr.Server, "PROTOCOL: too many processes race for the log"},
	16:                 {mysqlerr.Statement, "EMPTY: not used"},
	sqliteSchema:       {mysqlerr.Doubtful, "SCHEMA: it changed, and the statement must be prepared again"},
	18:                 {mysqlerr.Statement, "TOOBIG: a string or blob is too large"},
	sqliteConstraint:   {mysqlerr.Statement, "CONSTRAINT: a key, a check, a trigger"},
	20:                 {mysqlerr.Statement, "MISMATCH: a value of a wrong type"},
	21:                 {mysqlerr.Statement, "MISUSE: wrong use of the interface"},
	22:                 {mysqlerr.Doubtful, "NOLFS: the file is larger than the system allows"},
	23:                 {mysqlerr.Statement, "AUTH: an authorizer refused the statement"},
	24:                 {mysqlerr.Statement, "FORMAT: not used"},
	25:                 {mysqlerr.Statement, "RANGE: a parameter that the statement does not have"},
	sqliteNotADatabase: {mysqlerr.Doubtful, "NOTADB: a person must repair it, at an unknown time"},
}

// sqliteMessages classifies errors by the texts of sqlite3_errstr, for drivers without codes.
var sqliteMessages = []struct {
	text string
	code int
}{
	{"UNIQUE constraint failed", sqliteUnique},
	{"database is locked", sqliteBusy},
	{"table is locked", sqliteLocked},
	{"database schema is locked", sqliteLocked},
	{"access permission denied", 3},
	{"attempt to write a readonly database", sqliteReadOnly},
	{"interrupted", sqliteInterrupt},
	{"disk I/O error", sqliteIO},
	{"database disk image is malformed", sqliteCorrupt},
	{"database or disk is full", sqliteFull},
	{"unable to open database file", sqliteCannotOpen},
	{"locking protocol", sqliteProtocol},
	{"database schema has changed", sqliteSchema},
	{"file is not a database", sqliteNotADatabase},
	{"query aborted", sqliteAbort},
	{"out of memory", sqliteNoMemory},
	{"large file support is disabled", 22},
}

// sqliteBlame looks only at errors that a driver returned. Otherwise it could mistake a business error, such as
// "interrupted by the customer", for an error of SQLite with the same words.
func sqliteBlame(err error) mysqlerr.Blame {
	said := sqliteAnswer(err)
	switch {
	case said == nil:
		return mysqlerr.Statement
	case said == driver.ErrBadConn:
		return mysqlerr.Doubtful
	}
	return sqliteConditions[sqliteCode(said)&sqlitePrimaryCodeOf].blame
}

// sqliteAnswer returns the error of SQLite's driver that err wraps. If err wraps none, but wraps driver.ErrBadConn,
// sqliteAnswer returns driver.ErrBadConn. Otherwise it returns nil.
func sqliteAnswer(err error) error {
	if said := txwatch.SQLiteAnswer(err); said != nil {
		return said
	}
	if errors.Is(err, driver.ErrBadConn) {
		return driver.ErrBadConn
	}
	return nil
}

// sqliteCode returns the result code of a driver's error, extended if the driver provides that, or 0.
func sqliteCode(err error) int {
	var coded interface{ Code() int } // modernc.org/sqlite implements this
	if errors.As(err, &coded) {
		return coded.Code()
	}
	i := slices.IndexFunc(sqliteMessages, func(known struct {
		text string
		code int
	}) bool {
		return strings.Contains(err.Error(), known.text)
	})
	if i < 0 {
		return 0
	}
	return sqliteMessages[i].code
}
