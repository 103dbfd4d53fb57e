package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/txwatch"
	"github.com/compensator-go/compensator/migrations"
	"github.com/compensator-go/compensator/processlog"
)

// sqliteDialect needs SQLite 3.35, the first version with RETURNING. The library's transactions hold the write lock of the
// whole database from their first statement, so no row is ever locked.
func sqliteDialect() *dialect {
	// The day number is a REAL with an error of at most 20 µs, so rounding restores the exact millisecond, also without
	// unixepoch('subsec').
	now := "CAST(ROUND((julianday('now')-2440587.5)*86400000.0) AS INTEGER)"
	return &dialect{
		name:         "sqlite",
		migrations:   migrations.SQLite,
		now:          now,
		stamp:        now,
		stampMS:      sqliteNumbers,
		stampAt:      func(ms int64) string { return strconv.FormatInt(ms, 10) },
		quote:        "`",
		binary:       hexLiteral,
		text:         sqliteText,
		instr:        "INSTR",
		prefix:       sqlitePrefix,
		numbers:      sqliteNumbers,
		byteType:     "BLOB",
		texts:        func(columns string) string { return columns },
		empty:        "''",
		dueIndex:     " INDEXED BY `" + DefaultTable + "_due`",
		by:           func(string) string { return "" }, // SQLite chooses that index by itself.
		deleteByID:   func(table string) string { return "DELETE FROM " + table },
		thenJoin:     "CROSS JOIN",
		returning:    true,
		insertID:     true,
		unseenEnd:    true,
		again:        sqliteAgain,
		offer:        func(column string) string { return "excluded." + column },
		later:        func(a, b string) string { return "MAX(" + a + "," + b + ")" },
		keyed:        sqliteKeyed,
		groups:       sqliteGroups,
		openOrdering: openOrderingSQLite,
		probe:        probeSQLite,
		begin:        beginSQLite,
		check:        checkSQLite,
		fault:        sqliteFault,
		blame:        sqliteBlame,
		answered:     func(err error) bool { return sqliteAnswer(err) != nil },
		absent:       sqliteAbsent,
	}
}

// sqliteNumbers casts columns to integers. A SQLite column may hold a text or a fraction. It may also hold a negative
// number, where other databases have unsigned columns.
func sqliteNumbers(columns string) string {
	read := strings.Split(columns, ", ")
	for i, column := range read {
		if read[i] = "CAST(" + column + " AS INTEGER)"; column == "version" || column == "epoch" {
			read[i] = "MAX(" + read[i] + ",0)"
		}
	}
	return strings.Join(read, ", ")
}

func sqliteText(utf8 string) string { return "CAST(" + hexLiteral([]byte(utf8)) + " AS TEXT)" }

// sqlitePrefix returns the condition that a column begins with a text. It does not use LIKE, which would ignore the
// case.
func sqlitePrefix(column, text string) string {
	condition := column + ">=" + sqliteText(text)
	if next := nextPrefix(text); next != "" {
		condition += " AND " + column + "<" + sqliteText(next)
	}
	return condition
}

func sqliteAgain(key string, columns ...string) string {
	set := make([]string, len(columns))
	for i, column := range columns {
		set[i] = column + "=excluded." + column
	}
	return " ON CONFLICT (" + key + ") DO UPDATE SET " + strings.Join(set, ", ")
}

func sqliteKeyed(keys []processlog.IdempotencyKey) string {
	literals := make([]string, len(keys))
	for i, key := range keys {
		literals[i] = sqliteText(string(key))
	}
	return "idempotent_id IN (" + strings.Join(literals, ",") + ")"
}

// sqliteGroups returns a query that jumps through the due index from one business type to the next. GROUP BY would read
// every row.
func sqliteGroups(from string, states []processlog.State) string {
	parts := make([]string, len(states))
	for i, state := range states {
		next := fmt.Sprintf("SELECT MIN(business_type) FROM %s WHERE state=%d", from, state)
		parts[i] = fmt.Sprintf("SELECT %d AS state, business_type FROM (WITH RECURSIVE jump(business_type) AS (%s"+
			" UNION ALL SELECT (%s AND business_type>jump.business_type) FROM jump WHERE jump.business_type IS NOT NULL)"+
			" SELECT business_type FROM jump WHERE business_type IS NOT NULL)", state, next, next)
	}
	return strings.Join(parts, " UNION ALL ")
}

// OneWriter reports whether the database has a single writer, and the library has no connections of its own. In such a
// database, a transaction that writes also blocks the library's own writes.
func (s *Store) OneWriter() bool { return s.d.own == nil }

func probeSQLite(ctx context.Context, tx processlog.Tx) error {
	_, err := tx.ExecContext(ctx, txwatch.SQLiteProbe)
	switch inside, err := txwatch.SQLiteInside(err); {
	case err != nil:
		return fmt.Errorf("compensator: probe the transaction: %w", err)
	case !inside:
		return processlog.ErrNoTransaction
	}
	return nil
}

// beginSQLite begins a transaction that holds the write lock from the start. A transaction that takes the lock later
// fails at once if another transaction has written after it began.
func beginSQLite(ctx context.Context, db *sql.DB) (processlog.Transaction, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	// Unless the DSN sets another kind, database/sql begins a deferred transaction. Replace that transaction on its
	// connection.
	for _, statement := range []string{"ROLLBACK", "BEGIN IMMEDIATE"} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			_ = tx.Rollback() // The first error says more.
			return nil, err
		}
	}
	return sqliteTx{tx}, nil
}

// openOrderingSQLite finds out which file the store writes to, and how long its connections wait for a lock. It opens
// the writer of that file.
func openOrderingSQLite(ctx context.Context, s *Store) error {
	var file string
	var busyTimeout int64 // milliseconds
	err := s.db.QueryRowContext(ctx, "SELECT COALESCE((SELECT file FROM pragma_database_list WHERE name='main'),'')").Scan(&file)
	if err == nil {
		err = s.db.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&busyTimeout)
	}
	if err != nil {
		return fmt.Errorf("compensator: ask SQLite for its file: %w", err)
	}
	s.writer, s.timeout = openWriter(file), time.Duration(busyTimeout)*time.Millisecond
	return nil
}

// writerTx is a transaction that has a turn at the writer. The end of the transaction ends the turn.
type writerTx struct {
	sqliteTx
	release func()
}

// newWriterTx also ends the turn when ctx ends, because database/sql then rolls back by itself.
func newWriterTx(ctx context.Context, tx processlog.Transaction, release func()) writerTx {
	stop := context.AfterFunc(ctx, release)
	return writerTx{tx.(sqliteTx), func() { stop(); release() }}
}

// Commit implements Transaction.
func (t writerTx) Commit() error {
	defer t.release()
	return t.sqliteTx.Commit()
}

// Rollback implements Transaction.
func (t writerTx) Rollback() error {
	defer t.release()
	return t.sqliteTx.Rollback()
}

// sqliteTx is a transaction that never returns its connection to the pool while the transaction is open.
type sqliteTx struct{ *sql.Tx }

// Commit implements Transaction. A COMMIT can fail without ending the transaction, for example when readers of a
// database without WAL hold their locks too long. database/sql would then return the connection to the pool with the
// transaction open. So Commit sends COMMIT itself and then calls Rollback. After a failed COMMIT the ROLLBACK ends the
// transaction. After a successful COMMIT the Rollback finds no transaction, and only returns the connection.
func (t sqliteTx) Commit() error {
	_, err := t.ExecContext(context.Background(), "COMMIT")
	_ = t.Tx.Rollback()
	return err
}

func sqliteFault(err error) fault {
	switch {
	case err == nil:
		return faultOther
	case errors.Is(err, driver.ErrBadConn):
		return faultUnreachable
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return faultAborted // An interrupted write rolls back its whole transaction.
	}
	code := sqliteCode(err)
	if code == sqliteUnique || code == sqlitePrimaryKey {
		return faultDuplicate
	}
	switch code & sqlitePrimaryCodeOf {
	case sqliteBusy, sqliteLocked:
		return faultBusy
	case sqliteAbort, sqliteNoMemory, sqliteInterrupt, sqliteIO, sqliteFull:
		return faultAborted // SQLite may have rolled back the transaction by itself.
	}
	if _, absent := sqliteAbsent(err); absent {
		return faultNoTable
	}
	return faultOther
}

// sqliteAbsent returns the name of a missing table from the text of an error. SQLite has no separate code for a missing
// table.
func sqliteAbsent(err error) (table string, ok bool) {
	if err == nil {
		return "", false
	}
	_, table, ok = strings.Cut(err.Error(), "no such table: ")
	return table, ok
}
