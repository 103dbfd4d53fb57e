package txwatch

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// transcript records everything that a caller and the server can see of all kinds of work.
func transcript(t *testing.T, db *sql.DB) (seen []string) {
	note := func(format string, args ...any) { seen = append(seen, fmt.Sprintf(format, args...)) }
	conn := connection(t, db)
	before := commandCounters(t, conn)
	for _, work := range []struct {
		query string
		args  []any
	}{
		{"DROP TABLE IF EXISTS work", nil},
		{"CREATE TABLE work (id BIGINT UNSIGNED PRIMARY KEY AUTO_INCREMENT, a VARCHAR(10) NULL, b DECIMAL(8,3), c DATETIME(3), d DOUBLE, e BLOB)", nil},
		{"INSERT INTO work (a, b, c, d, e) VALUES ('x', 1.5, '2020-01-02 03:04:05.678', 0.25, X'00ff')", nil},
		{"INSERT INTO work (a, b, c, d, e) VALUES (?, ?, ?, ?, ?)", []any{nil, "2.125", time.Unix(1, 0).UTC(), 1e300, []byte(nil)}},
		{"INSERT INTO work (id, a) VALUES (?, ?)", []any{uint64(1<<64 - 2), true}},
		{"UPDATE work SET a = 'y'", nil},
		{"SELECT * FROM missing", nil},
		{"SELECT * FROM missing WHERE id = ?", []any{1}},
		{"INSERT INTO work (id) VALUES (?)", []any{make(chan int)}},
		{"DELETE FROM work WHERE id = ?", []any{1, 2}},
		{"SELECT 1; INSERT INTO work (a) VALUES ('m'); SELECT 2", nil},
	} {
		result, err := conn.ExecContext(t.Context(), work.query, work.args...)
		note("%s: %v", work.query, err)
		if err == nil {
			id, idErr := result.LastInsertId()
			n, nErr := result.RowsAffected()
			note("id %d %v, affected %d %v", id, idErr, n, nErr)
		}
	}
	for _, open := range []string{"", "BEGIN"} {
		if open != "" {
			_, err := conn.ExecContext(t.Context(), open)
			require.NoError(t, err)
		}
		noteRows(t, note, conn, "SELECT * FROM work ORDER BY id")
		noteRows(t, note, conn, "SELECT * FROM work WHERE id > ? ORDER BY id", 0)
		noteRows(t, note, conn, "SELECT id FROM work WHERE a IS NULL; DO 0; SELECT NULL, 'two', 3.5; SELECT * FROM missing")
		noteRows(t, note, conn, "SELECT * FROM work WHERE id = ?", make(chan int))
		noteRows(t, note, conn, "DO 0")
	}
	_, err := conn.ExecContext(t.Context(), "COMMIT")
	require.NoError(t, err)
	for _, opts := range []*sql.TxOptions{nil, {Isolation: sql.LevelReadCommitted}, {ReadOnly: true}, {Isolation: sql.LevelSnapshot}} {
		tx, err := conn.BeginTx(t.Context(), opts)
		note("begin %v: %v", opts, err)
		if err == nil {
			_, err = tx.Exec("INSERT INTO work (a) VALUES (?)", "t")
			note("insert: %v", err)
			note("commit: %v", tx.Commit())
		}
	}
	stmt, err := conn.PrepareContext(t.Context(), "SELECT ?, a FROM work LIMIT 1")
	require.NoError(t, err)
	for range 3 {
		rows, err := stmt.Query("arg")
		require.NoError(t, err)
		require.NoError(t, rows.Close())
	}
	_, err = stmt.Query()
	note("too few arguments: %v", err)
	require.NoError(t, stmt.Close())
	for name, n := range commandCounters(t, conn) {
		if n != before[name] {
			note("%s %d", name, n-before[name])
		}
	}
	return seen
}

func noteRows(t *testing.T, note func(string, ...any), conn *sql.Conn, query string, args ...any) {
	rows, err := conn.QueryContext(t.Context(), query, args...)
	note("%s: %v", query, err)
	if err != nil {
		return
	}
	defer rows.Close()
	for more := true; more; more = rows.NextResultSet() {
		types, err := rows.ColumnTypes()
		require.NoError(t, err)
		values, scan := make([]any, len(types)), make([]any, len(types))
		for i, column := range types {
			note("column %+v", *column)
			scan[i] = &values[i]
		}
		for rows.Next() {
			require.NoError(t, rows.Scan(scan...))
			note("row %#v", values)
		}
	}
	note("end: %v", rows.Err())
}

func commandCounters(t *testing.T, conn *sql.Conn) map[string]int {
	rows, err := conn.QueryContext(t.Context(), "SHOW SESSION STATUS WHERE Variable_name LIKE 'Com\\_%' OR Variable_name = 'Questions'")
	require.NoError(t, err)
	defer rows.Close()
	counters := make(map[string]int)
	for rows.Next() {
		var name string
		var n int
		require.NoError(t, rows.Scan(&name, &n))
		counters[name] = n
	}
	return counters
}

// Failure: F40
func TestWatchedConnectionBehavesAsTheDriversOwn(t *testing.T) {
	for _, params := range [][]string{nil, {"interpolateParams=true"}, {"parseTime=true", "clientFoundRows=true"}} {
		t.Run(strings.Join(params, "&"), func(t *testing.T) {
			watched, plain := connectorDB(t, append(params, "multiStatements=true")...)
			want, got := transcript(t, plain), transcript(t, watched)
			sort.Strings(want)
			sort.Strings(got)
			require.Equal(t, want, got)
			require.Greater(t, len(want), 100)
		})
	}
}

// Failure: F40
func TestConnectionKilledWhileIdleIsReplaced(t *testing.T) {
	watched, plain := connectorDB(t)
	for name, db := range map[string]*sql.DB{"watched": watched, "plain": plain} {
		t.Run(name, func(t *testing.T) {
			killer := openSameServer(t)
			db.SetMaxOpenConns(1)
			var id int
			require.NoError(t, db.QueryRow("SELECT CONNECTION_ID()").Scan(&id))
			_, err := killer.Exec(fmt.Sprintf("KILL %d", id))
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				var n int
				err := killer.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE id = ?", id).Scan(&n)
				return err == nil && n == 0
			}, connectorTimeout, time.Millisecond)
			var next int
			require.NoError(t, db.QueryRow("SELECT CONNECTION_ID()").Scan(&next))
			assert.NotEqual(t, id, next)
		})
	}
}

func openSameServer(t *testing.T) *sql.DB {
	config, err := mysql.ParseDSN(testservers.SharedSQL(t).DSN(""))
	require.NoError(t, err)
	return openConnectorDB(t, config, false)
}

func TestCancelledStatementEndsLikeTheDriversOwn(t *testing.T) {
	watched, plain := connectorDB(t)
	for name, db := range map[string]*sql.DB{"watched": watched, "plain": plain} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := db.ExecContext(ctx, "DO SLEEP(100)")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NoError(t, db.Ping())
		})
	}
}

func TestConnectorIsFound(t *testing.T) {
	config, err := mysql.ParseDSN(testservers.SharedSQL(t).DSN(""))
	require.NoError(t, err)
	inner, err := mysql.NewConnector(config)
	require.NoError(t, err)

	db := sql.OpenDB(Wrap(Wrap(inner)))
	defer db.Close()
	got, err := Find(t.Context(), db)
	require.NoError(t, err)
	assert.Same(t, inner, got.Inner())

	plain := sql.OpenDB(inner)
	defer plain.Close()
	got, err = Find(t.Context(), plain)
	require.NoError(t, err)
	assert.Nil(t, got)

	conn, err := db.Driver().Open(testservers.SharedSQL(t).DSN(""))
	require.NoError(t, err)
	assert.IsType(t, new(watchedConn), conn)
	require.NoError(t, conn.Close())
}

func TestConnectorOfADriverIsWhatTheDriverMakesOrOpensByName(t *testing.T) {
	newer, err := ConnectorOf(new(mysql.MySQLDriver), "tcp(nowhere:1)/shop")
	require.NoError(t, err)
	assert.NotEqual(t, opener{new(mysql.MySQLDriver), "tcp(nowhere:1)/shop"}, newer, "it keeps what it has parsed")
	assert.IsType(t, new(mysql.MySQLDriver), newer.Driver())
	_, err = ConnectorOf(new(mysql.MySQLDriver), "no DSN")
	require.Error(t, err)

	older, err := ConnectorOf(namedDriver{"shop.db": new(oldConn)}, "shop.db")
	require.NoError(t, err)
	db := sql.OpenDB(Wrap(older))
	defer db.Close()
	require.NoError(t, db.PingContext(t.Context()))
	found, err := Find(t.Context(), db)
	require.NoError(t, err)
	assert.Equal(t, older, found.Inner())
}

type namedDriver map[string]*oldConn

func (d namedDriver) Open(name string) (driver.Conn, error) { return d[name], nil }

func TestConnectorClosesTheInnerOne(t *testing.T) {
	inner := &closingConnector{}
	require.NoError(t, sql.OpenDB(Wrap(inner)).Close())
	assert.True(t, inner.closed)
}

type closingConnector struct {
	oldConnector
	closed bool
}

func (c *closingConnector) Close() error { c.closed = true; return nil }

type (
	oldConnector struct{ conn *oldConn }
	oldConn      struct {
		log         []string
		rollbackErr error
		prepareErr  error
	}
	oldStmt struct {
		conn  *oldConn
		query string
	}
	oldRows struct{ left int }
)

func (c oldConnector) Connect(context.Context) (driver.Conn, error) { return c.conn, nil }
func (c oldConnector) Driver() driver.Driver                        { return nil }

func (c *oldConn) note(what string)          { c.log = append(c.log, what) }
func (c *oldConn) Begin() (driver.Tx, error) { c.note("begin"); return c, nil }
func (c *oldConn) Commit() error             { c.note("commit"); return nil }
func (c *oldConn) Rollback() error           { c.note("rollback"); return c.rollbackErr }
func (c *oldConn) Close() error              { c.note("close"); return nil }

func (c *oldConn) Prepare(query string) (driver.Stmt, error) {
	c.note("prepare " + query)
	if strings.Contains(query, "CHECKED") {
		return checkingStmt{oldStmt{c, query}}, nil
	}
	return oldStmt{c, query}, c.prepareErr
}

func (s oldStmt) Close() error  { return nil }
func (s oldStmt) NumInput() int { return strings.Count(s.query, "?") }
func (s oldStmt) Exec(args []driver.Value) (driver.Result, error) {
	s.conn.note(fmt.Sprintf("exec %v", args))
	return driver.RowsAffected(1), nil
}
func (s oldStmt) Query(args []driver.Value) (driver.Rows, error) {
	s.conn.note(fmt.Sprintf("query %v", args))
	return &oldRows{left: 1}, nil
}
func (s oldStmt) ColumnConverter(int) driver.ValueConverter { return doubling{} }

func (r *oldRows) Columns() []string { return []string{"one"} }
func (r *oldRows) Close() error      { return nil }
func (r *oldRows) Next(dest []driver.Value) error {
	if r.left == 0 {
		return io.EOF
	}
	r.left--
	dest[0] = "row"
	return nil
}

type checkingStmt struct{ oldStmt }

func (checkingStmt) CheckNamedValue(value *driver.NamedValue) error {
	if _, ok := value.Value.(chan int); ok {
		value.Value = "checked"
		return nil
	}
	return driver.ErrSkip
}

// doubling doubles complex numbers, which no other converter accepts.
type doubling struct{}

func (doubling) ConvertValue(v any) (driver.Value, error) {
	if n, ok := v.(complex128); ok {
		return 2 * real(n), nil
	}
	return driver.DefaultParameterConverter.ConvertValue(v)
}

// Failure: F40
func TestDriverWithoutOptionalInterfacesBehavesAsBefore(t *testing.T) {
	work := func(connect func(*oldConn) driver.Connector) []string {
		conn := new(oldConn)
		db := sql.OpenDB(connect(conn))
		note := func(format string, args ...any) { conn.note(fmt.Sprintf(format, args...)) }
		_, err := db.Exec("SET x = ?", complex(4, 0))
		note("%v", err)
		_, err = db.Exec("SET x = ?, y = ? -- CHECKED", make(chan int), complex(5, 0))
		note("%v", err)
		_, err = db.Exec("SET x = ?", sql.Named("name", 1))
		note("%v", err)
		_, err = db.Exec("SET x = ?")
		note("%v", err)
		note("%v", db.Ping())
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		_, err = db.ExecContext(cancelled, "SET x = 1")
		note("%v", err)
		_, err = db.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
		note("%v", err)
		_, err = db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelSerializable})
		note("%v", err)
		tx, err := db.Begin()
		note("%v", err)
		rows, err := tx.Query("SELECT ?", int8(3))
		note("%v", err)
		types, err := rows.ColumnTypes()
		note("%+v %v", *types[0], err)
		for rows.Next() {
			var s string
			note("%v %v", rows.Scan(&s), s)
		}
		note("%v %v", rows.NextResultSet(), rows.Err())
		note("%v", rows.Close())
		note("%v", tx.Commit())
		note("%v", db.Close())
		return conn.log
	}
	want := work(func(c *oldConn) driver.Connector { return oldConnector{c} })
	got := work(func(c *oldConn) driver.Connector { return Wrap(oldConnector{c}) })
	assert.Equal(t, want, got)
	assert.Contains(t, got, "exec [8]")
	assert.Contains(t, got, "exec [checked 10]")
}

func TestDriverWithoutOptionalInterfacesIsWatched(t *testing.T) {
	inner := new(oldConn)
	db := sql.OpenDB(Wrap(oldConnector{inner}))
	defer db.Close()
	tx := begin(t, db)
	w, got := enlisted(t, tx)
	w.Taint(errors.New("not written"))
	require.ErrorIs(t, tx.Commit(), processlog.ErrNotRecorded)
	assert.Equal(t, outcomes{RolledBack}, *got)

	conn := connection(t, db)
	mustExec(t, conn, "BEGIN")
	w, got = enlisted(t, conn)
	w.Taint(errors.New("not written"))
	_, err := conn.ExecContext(t.Context(), "COMMIT")
	require.ErrorIs(t, err, processlog.ErrNotRecorded)
	assert.Equal(t, outcomes{RolledBack}, *got)
	assert.Equal(t, []string{"begin", "rollback", "prepare BEGIN", "exec []", "prepare ROLLBACK", "exec []"}, inner.log)
}

func TestRowsOfOldDriverHaveNeutralColumns(t *testing.T) {
	rows := &watchedRows{inner: new(oldRows), conn: new(watchedConn)}
	assert.False(t, rows.HasNextResultSet())
	assert.Equal(t, io.EOF, rows.NextResultSet())
	assert.Equal(t, reflect.TypeFor[any](), rows.ColumnTypeScanType(0))
	assert.Empty(t, rows.ColumnTypeDatabaseTypeName(0))
	_, ok := rows.ColumnTypeLength(0)
	assert.False(t, ok)
	_, ok = rows.ColumnTypeNullable(0)
	assert.False(t, ok)
	_, _, ok = rows.ColumnTypePrecisionScale(0)
	assert.False(t, ok)
}

func TestConnectionThatCouldNotRollBackIsNotUsedAgain(t *testing.T) {
	for name, inTx := range map[string]bool{"Tx.Commit": true, "text": false} {
		t.Run(name, func(t *testing.T) {
			inner := &oldConn{rollbackErr: errors.New("no")}
			db := sql.OpenDB(Wrap(oldConnector{inner}))
			defer db.Close()
			begun, commit := beginEitherWay(t, db, !inTx)
			w, _ := enlisted(t, begun)
			w.Taint(errors.New("not written"))
			inner.prepareErr = errors.New("no")
			require.ErrorIs(t, commit(), processlog.ErrNotRecorded)
			if conn, ok := begun.(*sql.Conn); ok {
				require.NoError(t, conn.Close())
			}
			assert.Equal(t, "close", inner.log[len(inner.log)-1])
		})
	}
}

func TestDeadlockWhilePreparingAbortsTransaction(t *testing.T) {
	inner := new(oldConn)
	db := sql.OpenDB(Wrap(oldConnector{inner}))
	defer db.Close()
	tx := begin(t, db)
	w, _ := enlisted(t, tx)
	inner.prepareErr = &mysql.MySQLError{Number: 1213}
	_, err := tx.Prepare("SELECT 1")
	requireMySQL(t, err, 1213)
	assert.ErrorIs(t, w.Err(), processlog.ErrTxAborted)
}
