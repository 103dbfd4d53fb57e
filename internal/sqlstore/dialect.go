package sqlstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/internal/txwatch"
	"github.com/compensator-go/compensator/processlog"
)

// dialect holds everything that differs between kinds of databases. A field that is a suffix or a hint may be empty.
// Statements on that database then need no such text.
//
// The following fields depend on the server: halves, share, shareNow, inTx, fit, steady, returning, probe, snapshots,
// galera and foldsNames. Store.Check finds out what the server really does, and then sets these fields.
type dialect struct {
	name       string
	migrations fs.FS

	now      string                     // expression: milliseconds since 1970 by the database's clock
	stamp    string                     // expression: the value for created_at and updated_at
	stampMS  func(column string) string // expression: a time column such as created_at, read as milliseconds since 1970
	stampAt  func(ms int64) string      // literal for created_at and updated_at at the time ms
	quote    string                     // quotes the names of tables and columns; statements are written with `
	numbered bool                       // placeholders are $1, $2 and so on; statements are written with ?
	binary   func(b []byte) string      // literal of bytes
	text     func(utf8 string) string   // literal of a text
	// instr is the name of an SQL function. It returns the position of a text in a longer text, counted from 1, or 0 if
	// the longer text does not contain the shorter one.
	instr    string
	prefix   func(column, text string) string // condition: the column begins with the text, as a range of the column's index
	numbers  func(columns string) string      // expressions that read whole numbers from columns of any type
	byteType string                           // type that a text is cast to so that no charset changes it
	texts    func(columns string) string      // expressions that read texts as the stored bytes, whatever the charset of the session is
	empty    string                           // literal of an empty text, also in a session that takes '' for NULL
	// hexText is the expression for a text whose placeholder holds hexadecimal digits. It is empty if a plain
	// placeholder carries every text unchanged.
	hexText string
	fit     string // condition that is true if the session's INSERT stores exactly what it is sent
	// steady is a condition that is true if the session uses the server's clock. It is empty on MariaDB, where the
	// function calm makes each statement use the server's clock. It is empty on SQLite, where a session has no clock of
	// its own.
	steady string
	// shortWaits is a statement that limits how long a session waits for row locks. It is empty on MariaDB, where the
	// function calm sets this limit in each statement. It is empty on SQLite, which has no row locks.
	shortWaits string
	// calm makes a statement independent of the session's variables. It is nil if no variable changes what a statement
	// does.
	calm       func(query string) string
	dueIndex   string                    // hint: read the table by its due index
	idIndex    string                    // hint: read the table by id
	by         func(index string) string // hint: read the table by this index of migrations/, even if another plan seems cheaper
	deleteByID func(table string) string // DELETE FROM the table, with idIndex
	skipLocked string                    // suffix: lock the rows that are read, and skip those that are locked
	// halves says that skipLocked does not skip locked rows on this server. The store then uses lockNow, and halves the
	// list of rows after each failure.
	halves   bool
	thenJoin string // JOIN in the written order, even if another order seems cheaper
	lock     string // suffix: lock the rows that are read, and wait for locked ones
	lockNow  string // suffix: lock the rows that are read, or fail at once
	share    string // suffix: read the latest committed rows, and wait for rows of open transactions
	shareNow string // suffix: as share, but fail at once if a row belongs to an open transaction
	// inTx is a condition that makes a statement fail or change nothing outside a transaction. It is empty if the
	// server has no such condition.
	inTx string
	// latest is a statement after which the next read shows the latest committed rows. It fails inside a transaction.
	// It is empty if no such statement is needed.
	latest    string
	snapshots bool // whether a lock on a row that changed since the snapshot aborts the transaction (innodb_snapshot_isolation)
	// foldsNames says that database names ignore case. DATABASE() then returns the name as it was written when the
	// database was selected.
	foldsNames bool
	galera     bool // whether other nodes may have committed rows that this node does not show yet
	returning  bool // whether the server has INSERT … RETURNING
	insertID   bool // whether the driver returns the id of an inserted row. If not, the INSERT must be RETURNING
	breaks     bool // whether a failed statement makes its transaction unusable until it goes back to a savepoint
	qualified  bool // whether the table may be named database.table
	unseenEnd  bool // whether a failed statement may end the transaction without the knowledge of a watcher of the connection

	again  func(key string, columns ...string) string                   // suffix: an INSERT whose key exists overwrites these columns
	offer  func(column string) string                                   // in an INSERT with again: the value that the INSERT brings for a column
	later  func(a, b string) string                                     // the greater one of two numbers
	keyed  func(keys []processlog.IdempotencyKey) string                // condition: the row's idempotency key is one of keys
	groups func(from string, states []processlog.State) string          // query: the states and types that occur, without reading every row; nil: a plain GROUP BY is used
	ended  func(seconds int, query string) string                       // makes the server end a SELECT after seconds; nil: the context ends it
	own    func(users *txwatch.Connector, opened *atomic.Int64) *sql.DB // opens the library's own pool beside the user's; nil: statements run in the user's pool

	openOrdering func(ctx context.Context, s *Store) error // opens the writer that all stores of the same file share; nil: the database has many writers

	probe func(ctx context.Context, tx processlog.Tx) error                     // returns ErrNoTransaction unless a transaction is open
	begin func(ctx context.Context, db *sql.DB) (processlog.Transaction, error) // begins a READ COMMITTED transaction in the user's pool
	check func(ctx context.Context, s *Store) []error                           // returns every reason why the library cannot run here
	fault func(err error) fault                                                 // classifies an error of the library's statements
	blame func(err error) mysqlerr.Blame                                        // says whether the statement or the server caused an error

	answered func(err error) bool                              // reports whether the error came from the database itself
	changed  func(err error) bool                              // reports whether the error says that the row changed since the snapshot of its transaction; nil: there is no such error
	absent   func(err error) (text string, ok bool)            // returns the text of an error that says that a table is missing or forbidden
	whyUnfit func(ctx context.Context, tx processlog.Tx) error // says why fit refused an INSERT; nil if fit is empty
}

// fault says what an error of the database means for a statement of the library.
type fault int

const (
	faultOther       fault = iota
	faultDuplicate         // a row with the same unique key exists
	faultBusy              // a lock was not available in time; the statement changed nothing
	faultEnded             // the server ended the statement because of a time limit or KILL; the statement changed nothing
	faultAborted           // the server rolled the whole transaction back
	faultGuard             // guardedKey refused the INSERT
	faultNoTable           // a table does not exist
	faultNull              // a value became NULL on its way into a column that does not accept NULL
	faultUnreachable       // the connection broke; the effect of the statement is unknown
)

// hexLiteral returns a literal of bytes as MySQL, MariaDB and SQLite read it.
func hexLiteral(b []byte) string { return "X'" + hex.EncodeToString(b) + "'" }

// nextPrefix returns the least text that is greater than every text that begins with prefix, in the order of Unicode code
// points. It returns an empty text if there is none.
func nextPrefix(prefix string) string {
	runes := []rune(prefix)
	for i := len(runes) - 1; i >= 0; i-- {
		switch next := runes[i] + 1; {
		case next > utf8.MaxRune:
		case next == 0xd800: // Skip the surrogates, which are no characters.
			return string(runes[:i]) + "\ue000"
		default:
			return string(runes[:i]) + string(next)
		}
	}
	return ""
}

// endedBy returns a text literal. An EndedBy has letters only, so it needs no escaping.
func (d *dialect) endedBy(by processlog.EndedBy) string {
	if by == "" {
		return d.empty
	}
	return "'" + string(by) + "'"
}

func detectDialect(ctx context.Context, db *sql.DB) (*dialect, error) {
	var version string
	mysqlErr := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
	if mysqlErr == nil {
		return mysqlDialect(version), nil
	}
	if err := db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err == nil {
		return sqliteDialect(), nil
	}
	return nil, fmt.Errorf("compensator: ask the database for its version: %w", mysqlErr)
}

func dialectNamed(name string) *dialect {
	switch name {
	case "mysql":
		return mysqlDialect("")
	case "sqlite":
		return sqliteDialect()
	}
	return nil
}

// Blame says whether the statement or the server caused an error. The statement may come from the library or from the
// user. The end of the caller's context is never the server's fault.
func (s *Store) Blame(err error) mysqlerr.Blame {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return mysqlerr.Statement
	}
	blame := s.d.blame(err)
	if blame == mysqlerr.Statement && (errors.Is(err, processlog.ErrTxAborted) || processlog.IsSessionError(err)) {
		return mysqlerr.Doubtful
	}
	return blame
}

// Blames does the same as Blame if the database is unknown: it tries the rules of every kind of database.
func Blames(err error) mysqlerr.Blame { return max(mysqlerr.Blames(err), sqliteBlame(err)) }

// ServerFault reports whether the server, rather than the statement, caused or may have caused an error.
func (s *Store) ServerFault(err error) bool { return s.Blame(err) != mysqlerr.Statement }

// DefaultTable is the name of the process log in the migrations.
const DefaultTable = "common_process_log"

// tableName is a validated table name. database is empty if the name is not qualified.
type tableName struct{ database, base string }

// namePart matches a name that needs no escape. MySQL allows 64 characters.
var namePart = regexp.MustCompile(`^[A-Za-z0-9_$]{1,64}$`)

// longestTable is the length of the longest table name. It leaves room for the longest suffix of the log's tables.
var longestTable = 64 - len(slices.MaxFunc(suffixes, func(a, b string) int { return len(a) - len(b) }))

// table parses the name of a log. It refuses a qualified name if the database has no qualified names.
func (d *dialect) table(s string) (tableName, error) {
	name, err := parseTable(s)
	if err == nil && name.database != "" && !d.qualified {
		err = &processlog.FieldError{Field: "Table", Reason: "this database has no qualified table names"}
	}
	return name, err
}

func parseTable(s string) (tableName, error) {
	database, base, found := strings.Cut(s, ".")
	if !found {
		database, base = "", s
	}
	if !namePart.MatchString(base) || len(base) > longestTable || (found && !namePart.MatchString(database)) {
		return tableName{}, &processlog.FieldError{Field: "Table", Reason: fmt.Sprintf("%q: want letters, digits, _ or $, at most %d, optionally database.table", s, longestTable)}
	}
	return tableName{database, base}, nil
}

// CheckTable reports what is wrong with a table name.
func CheckTable(s string) error {
	_, err := parseTable(s)
	return err
}

// quoted returns the table name plus suffix, quoted for SQL.
func (t tableName) quoted(suffix string) string {
	if t.database == "" {
		return "`" + t.base + suffix + "`"
	}
	return "`" + t.database + "`.`" + t.base + suffix + "`"
}

// replaceDefault returns a text in which this table name stands in place of DefaultTable. quoteMark is the character that
// quotes names in the text.
func (t tableName) replaceDefault(text, quoteMark string) string {
	name := strings.ReplaceAll(t.quoted(""), "`", quoteMark)
	return strings.ReplaceAll(text, quoteMark+DefaultTable, strings.TrimSuffix(name, quoteMark))
}
