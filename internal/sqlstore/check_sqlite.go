package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

// checkSQLite checks two connections, because a PRAGMA that is run through the pool sets only one of them.
// synchronous=NORMAL is accepted, although WAL may then lose the last commits when the machine loses power.
func checkSQLite(ctx context.Context, s *Store) []error {
	conns := 2
	if s.db.Stats().MaxOpenConnections == 1 {
		conns = 1
	}
	var opened []*sql.Conn
	for range conns {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return []error{fmt.Errorf("compensator: connect: %w", err)}
		}
		// Keep this connection until the end. Otherwise the pool could return the same connection in the next round.
		defer conn.Close()
		if problems := checkSQLiteConn(ctx, s, conn, conns > 1); len(problems) > 0 {
			return problems
		}
		opened = append(opened, conn)
	}
	if conns == 1 {
		return nil
	}
	return checkSharedCache(ctx, opened[0], opened[1], s.table)
}

// checkSharedCache refuses a shared cache. With a shared cache, a read during a write fails at once or waits forever.
// To detect it, one connection writes a row without a commit, and the other connection reads with read_uncommitted. The
// other connection sees the row only through a shared cache.
func checkSharedCache(ctx context.Context, writer, reader *sql.Conn, table tableName) []error {
	if _, err := writer.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return nil
	}
	defer func() { _, _ = writer.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") }()
	meta, name := table.quoted("_meta"), "'compensator-check-"+rand.Text()+"'"
	if _, err := writer.ExecContext(ctx, "INSERT INTO "+meta+" (name, value) VALUES ("+name+",'')"); err != nil {
		return []error{fmt.Errorf("compensator: try a write: %w", err)}
	}
	seen, err := seesUncommitted(ctx, reader, "SELECT COUNT(*) FROM "+meta+" WHERE name="+name)
	if err != nil {
		return []error{fmt.Errorf("compensator: read while another connection writes: %w", err)}
	}
	if seen {
		return []error{&processlog.FieldError{Field: "cache", Reason: "is shared (cache=shared in the DSN): while one connection writes, another fails or waits forever, also in your own transactions; remove it, and use WAL"}}
	}
	return nil
}

// seesUncommitted waits for no lock, because a database in memory may block readers. It restores the connection's
// settings.
func seesUncommitted(ctx context.Context, conn *sql.Conn, count string) (seen bool, err error) {
	var timeout int // milliseconds
	if err := conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&timeout); err != nil {
		return false, err
	}
	for _, pragma := range []string{"PRAGMA busy_timeout=0", "PRAGMA read_uncommitted=1"} {
		if _, err := conn.ExecContext(ctx, pragma); err != nil {
			return false, err
		}
	}
	err = conn.QueryRowContext(ctx, count).Scan(&seen)
	if sqliteFault(err) == faultBusy {
		err = nil
	}
	for _, pragma := range []string{"PRAGMA read_uncommitted=0", fmt.Sprintf("PRAGMA busy_timeout=%d", timeout)} {
		_, restored := conn.ExecContext(context.WithoutCancel(ctx), pragma)
		err = errors.Join(err, restored)
	}
	return seen, err
}

func checkSQLiteConn(ctx context.Context, s *Store, conn *sql.Conn, several bool) []error {
	session, err := readSQLiteSession(ctx, conn)
	if err != nil {
		return []error{fmt.Errorf("compensator: read the connection's settings: %w", err)}
	}
	problems := session.problems()
	if session.exclusive(several) {
		return append(problems, &processlog.FieldError{Field: "locking_mode", Reason: "is EXCLUSIVE: the first connection blocks all others forever; want NORMAL, or a pool of one connection"})
	}
	definition, err := readSQLiteTable(ctx, s.d, conn, s.table)
	if err != nil {
		return append(problems, fmt.Errorf("compensator: read the table's definition: %w", err))
	}
	s.foreign = definition.side.foreign(s.table)
	return append(problems, definition.problems(s.table)...)
}

type sqliteSession struct {
	version         string
	busyTimeout     int // milliseconds
	synchronous     int // 0 OFF, 1 NORMAL, 2 FULL, 3 EXTRA
	journalMode     string
	encoding        string
	readUncommitted bool
	queryOnly       bool
	lockingMode     string
	file            string // empty: the database is in memory
}

func (p sqliteSession) exclusive(several bool) bool {
	return several && p.file != "" && strings.EqualFold(p.lockingMode, "exclusive")
}

func readSQLiteSession(ctx context.Context, conn *sql.Conn) (sqliteSession, error) {
	var p sqliteSession
	settings := []struct {
		query string
		into  any
	}{
		{"SELECT sqlite_version()", &p.version},
		{"PRAGMA busy_timeout", &p.busyTimeout},
		{"PRAGMA main.synchronous", &p.synchronous},
		{"PRAGMA main.journal_mode", &p.journalMode},
		{"PRAGMA encoding", &p.encoding},
		{"PRAGMA read_uncommitted", &p.readUncommitted},
		{"PRAGMA query_only", &p.queryOnly},
		{"PRAGMA main.locking_mode", &p.lockingMode},
		{"SELECT COALESCE(file,'') FROM pragma_database_list WHERE name='main'", &p.file},
	}
	for _, setting := range settings {
		if err := conn.QueryRowContext(ctx, setting.query).Scan(setting.into); err != nil {
			return p, fmt.Errorf("%s: %w", setting.query, err)
		}
	}
	return p, nil
}

const minBusyTimeout = 1000 // milliseconds

func (p sqliteSession) problems() []error {
	var problems []error
	refuse := func(field, reason string) {
		problems = append(problems, &processlog.FieldError{Field: field, Reason: reason})
	}
	if !p.supported() {
		refuse("SQLite version", p.version+": want 3.35, the first with RETURNING")
	}
	if p.busyTimeout < minBusyTimeout {
		refuse("busy_timeout", fmt.Sprintf("is %d ms on at least one connection: writers would fail instead of waiting for each other; want %d ms, set in the DSN", p.busyTimeout, minBusyTimeout))
	}
	if p.synchronous == 0 {
		refuse("synchronous", "is OFF: a commit could be lost, and the file broken, when the machine stops; want FULL")
	}
	if strings.EqualFold(p.journalMode, "off") {
		refuse("journal_mode", "is OFF: there is no ROLLBACK; want WAL")
	}
	if strings.EqualFold(p.journalMode, "memory") && p.file != "" {
		refuse("journal_mode", "is MEMORY: a process killed while it commits breaks the file; want WAL")
	}
	if !strings.EqualFold(p.encoding, "UTF-8") {
		refuse("encoding", "is "+p.encoding+": want UTF-8")
	}
	if p.readUncommitted {
		refuse("read_uncommitted", "is on: an entry could run before its transaction commits")
	}
	if p.queryOnly {
		refuse("query_only", "is on: nothing can be written")
	}
	return problems
}

func (p sqliteSession) supported() bool {
	var major, minor int
	n, _ := fmt.Sscanf(p.version, "%d.%d", &major, &minor)
	return n == 2 && (major > 3 || major == 3 && minor >= 35)
}

type sqliteTable struct {
	statement string // CREATE TABLE; empty: the table does not exist
	isView    bool
	columns   map[string]string // declared type by name
	indexes   []sqliteIndex
	side      sideTables
}

type sqliteIndex struct {
	name    string
	unique  bool
	partial bool
	columns string // "name collation,…"
}

func readSQLiteTable(ctx context.Context, d *dialect, conn *sql.Conn, table tableName) (sqliteTable, error) {
	t := sqliteTable{columns: make(map[string]string)}
	err := conn.QueryRowContext(ctx, "SELECT sql, type='view' FROM main.sqlite_master WHERE type IN ('table','view') AND name=? COLLATE NOCASE", table.base).Scan(&t.statement, &t.isView)
	if errors.Is(err, sql.ErrNoRows) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	sideRows, err := conn.QueryContext(ctx, d.sideQuery(table))
	if err != nil {
		return t, err
	}
	if t.side, err = readSideTables(sideRows, table.base); err != nil {
		return t, err
	}
	if err := t.readColumns(ctx, conn, table); err != nil {
		return t, err
	}
	err = t.readIndexes(ctx, conn, table)
	return t, err
}

func (t *sqliteTable) readColumns(ctx context.Context, conn *sql.Conn, table tableName) error {
	rows, err := conn.QueryContext(ctx, "SELECT LOWER(name), UPPER(type) FROM pragma_table_info(?)", table.base)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name, declared string
		if err := rows.Scan(&name, &declared); err != nil {
			return err
		}
		t.columns[name] = declared
	}
	return rows.Err()
}

func (t *sqliteTable) readIndexes(ctx context.Context, conn *sql.Conn, table tableName) error {
	rows, err := conn.QueryContext(ctx, "SELECT l.name, l.`unique`, l.partial, (SELECT GROUP_CONCAT(LOWER(COALESCE(x.name,'id')) || ' ' || UPPER(x.coll)) FROM pragma_index_xinfo(l.name) AS x WHERE x.key=1) FROM pragma_index_list(?) AS l", table.base)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var index sqliteIndex
		if err := rows.Scan(&index.name, &index.unique, &index.partial, &index.columns); err != nil {
			return err
		}
		t.indexes = append(t.indexes, index)
	}
	return rows.Err()
}

// sqliteColumns lists declared types. They decide whether SQLite stores a text of digits as a number.
var sqliteColumns = map[string][]string{
	"INTEGER": {"id", "state", "process_count", "max_process_count", "delay_second", "next_at", "lease_until", "version", "epoch",
		"delivery_count", "compensate_count", "created_at", "updated_at"},
	"TEXT": strings.Split(recordedTexts+", ended_by, last_error", ", "),
	"BLOB": {"content", "headers", "token"},
}

func (t sqliteTable) problems(name tableName) []error {
	if t.isView {
		return []error{viewNotTable(name)}
	}
	if t.statement == "" {
		return []error{&processlog.FieldError{Field: "table " + name.quoted(""), Reason: "does not exist, at least on one connection; run Migrate or the files in migrations/sqlite"}}
	}
	var problems []error
	refuse := func(problem, reason string) {
		problems = append(problems, &processlog.FieldError{Field: "table " + name.quoted("") + problem, Reason: reason})
	}
	if foreign := foreignTable(name, func(column string) bool { return t.columns[column] != "" }); foreign != nil {
		return []error{foreign}
	}
	for expected, columns := range sqliteColumns {
		for _, column := range columns {
			switch declared := t.columns[column]; {
			case declared == "":
				refuse(" column "+column, "missing")
			case declared != expected:
				refuse(" column "+column, "is "+declared+", want "+expected)
			}
		}
	}
	if !strings.Contains(strings.ToUpper(t.statement), "AUTOINCREMENT") {
		refuse(" column id", "is not AUTOINCREMENT: the ids of purged entries would be used again")
	}
	if !slices.ContainsFunc(t.indexes, func(i sqliteIndex) bool {
		return i.unique && !i.partial && i.columns == "idempotent_id BINARY"
	}) {
		refuse(" index", "no UNIQUE index on idempotent_id: duplicates would be recorded twice")
	}
	due := sqliteIndex{name: name.base + "_due", columns: "state BINARY,business_type BINARY,next_at BINARY,id BINARY"}
	if !slices.Contains(t.indexes, due) {
		refuse(" index "+due.name, "missing (state, business_type, next_at, id)")
	}
	for _, suffix := range requiredTables {
		if err := t.side.foreign(name)[suffix]; err != nil {
			problems = append(problems, err)
		}
	}
	for _, table := range t.side.missing(name) {
		refuse("", "lacks "+table+" beside it")
	}
	return problems
}
