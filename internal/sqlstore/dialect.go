package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/internal/txwatch"
	"github.com/compensator-go/compensator/processlog"
)

// dialect is what one kind of database needs to be told differently. Suffixes and hints may be empty; a func may be
// nil where that is said. check gives up what the
// server turns out not to do: halves, share and shareNow, inTx, returning, probe; and finds out snapshots, galera, foldsNames.
type dialect struct {
	name       string
	migrations fs.FS

	now        string                      // ms since 1970 by the database's clock
	stamp      string                      // the value for created_at and updated_at
	stampMS    func(column string) string  // reads such a column as ms
	stampAt    func(ms int64) string       // the literal for ms
	text       func(utf8 string) string    // a text literal
	numbers    func(columns string) string // reads whole numbers, whatever they were written as
	bytes      string                      // type that a text is cast to so that no character set changes it
	texts      func(columns string) string // reads texts as the bytes that are stored, whatever charset the session has
	empty      string                      // an empty text, also where a session takes '' for NULL
	hexText    string                      // the text of a placeholder that holds hexadecimal digits; "": placeholders carry every text
	fit        string                      // condition that the session of an INSERT writes what it is sent
	steady     string                      // condition that the session has the server's clock; "": calm sees to it, or there is no such thing
	shortWaits string                      // statement that bounds a session's waits for row locks, of which calm knows nothing; "": calm does
	calm       func(query string) string   // a statement that variables of the session do not change; nil: there are none
	dueIndex   string                      // hint: read the table by its due index
	idIndex    string                      // hint: read the table by id
	by         func(index string) string   // hint: read the table by this index of migrations/, whatever seems cheaper
	deleteByID func(table string) string   // DELETE FROM the table, with idIndex
	skipLocked string                      // suffix: lock the rows read, leave out those that are locked
	halves     bool                        // skipLocked does not do that: use lockNow on fewer and fewer rows
	thenJoin   string                      // JOIN, from what stands before it, whatever seems cheaper
	lock       string                      // suffix: lock the rows read, wait for them
	lockNow    string                      // suffix: lock the rows read, or fail at once
	share      string                      // suffix: read the latest committed rows, wait for those in flight
	shareNow   string                      // suffix: the same, or fail at once
	inTx       string                      // condition that a statement fails or changes nothing outside a transaction; "": there is none
	latest     string                      // statement that makes the next read show what is committed, and fails inside a transaction
	snapshots  bool                        // a lock on a row that changed since the snapshot aborts the transaction
	foldsNames bool                        // a database goes by any case of its name, and is said by the one it was asked for by
	galera     bool                        // other nodes may have committed what this one does not show yet
	returning  bool                        // INSERT … RETURNING
	qualified  bool                        // the table may be named database.table
	unseenEnd  bool                        // a failed statement may end the transaction, and no watcher of the connection can tell

	again  func(key string, columns ...string) string                   // an INSERT of a row whose key is there takes these columns over
	keyed  func(keys []processlog.IdempotencyKey) string                // condition: the row's idempotency key is one of keys
	groups func(from string, states []processlog.State) string          // the states and types that occur, without reading every row; nil: GROUP BY does not
	ended  func(seconds int, query string) string                       // a SELECT that the server ends after so long; nil: a context does
	own    func(users *txwatch.Connector, opened *atomic.Int64) *sql.DB // a pool of ours beside the user's; nil: one in the user's does

	openOrdering func(ctx context.Context, s *Store) error // finds out who writes to the same file; nil: there are many writers

	probe func(ctx context.Context, tx processlog.Tx) error                     // ErrNoTransaction unless open
	begin func(ctx context.Context, db *sql.DB) (processlog.Transaction, error) // READ COMMITTED, in the user's pool
	check func(ctx context.Context, s *Store) []error                           // every reason not to run here
	fault func(err error) fault                                                 // what an error means
	blame func(err error) mysqlerr.Blame                                        // whose fault an error of anybody's statement is

	answered func(err error) bool // the database itself has said it
}

// fault classifies an error of the database by what it means for a statement of ours.
type fault int

const (
	faultOther       fault = iota
	faultDuplicate         // a unique key exists
	faultBusy              // a lock was not to be had in time; the statement did nothing
	faultEnded             // the server ended the statement, for its time or by KILL; the statement did nothing
	faultAborted           // the server rolled the whole transaction back
	faultGuard             // guardedKey refused
	faultNoTable           // a table is not there
	faultUnreachable       // the connection broke: nothing is known
)

// endedBy is a text literal, of letters alone.
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

// Blame says whose fault an error is, of a statement of anybody's. What the caller's context has ended is no fault of a server.
func (s *Store) Blame(err error) mysqlerr.Blame {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return mysqlerr.Statement
	}
	blame := s.d.blame(err)
	if blame == mysqlerr.Statement && errors.Is(err, processlog.ErrTxAborted) {
		return mysqlerr.Doubtful
	}
	return blame
}

// Blames says whose fault an error of anybody's statement is, whatever database that was sent to.
func Blames(err error) mysqlerr.Blame { return max(mysqlerr.Blames(err), sqliteBlame(err)) }

// ServerFault reports whether an error is, or may be, a condition of the database, and not the statement's fault.
func (s *Store) ServerFault(err error) bool { return s.Blame(err) != mysqlerr.Statement }

// DefaultTable is the process log's name in the migrations.
const DefaultTable = "common_process_log"

// tableName is a validated, possibly qualified table name.
type tableName struct{ database, base string }

var tablePart = regexp.MustCompile(`^[A-Za-z0-9_$]{1,58}$`) // 64, less the longest suffix of ours

// table is a log's name, where this kind of database takes it.
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
	if !tablePart.MatchString(base) || (found && !tablePart.MatchString(database)) {
		return tableName{}, &processlog.FieldError{Field: "Table", Reason: fmt.Sprintf("%q: want letters, digits, _ or $, at most 58, optionally database.table", s)}
	}
	return tableName{database, base}, nil
}

// CheckTable reports what is wrong with a table's name.
func CheckTable(s string) error {
	_, err := parseTable(s)
	return err
}

// quoted returns the table's name, with suffix, as SQL wants it.
func (t tableName) quoted(suffix string) string {
	if t.database == "" {
		return "`" + t.base + suffix + "`"
	}
	return "`" + t.database + "`.`" + t.base + suffix + "`"
}

// in replaces the default name in a migration file.
func (t tableName) in(text string) string {
	return strings.ReplaceAll(text, "`"+DefaultTable, strings.TrimSuffix(t.quoted(""), "`"))
}
