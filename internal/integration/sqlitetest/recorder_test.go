package sqlitetest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

type recorder struct {
	driver driver.Driver
	dsn    string

	mu   sync.Mutex // guards sent
	sent []statement
}

type statement struct {
	text string
	args []any
}

func record(t testing.TB, dsn string) (*sql.DB, *recorder) {
	r := &recorder{driver: open(t, dsn).Driver(), dsn: dsn}
	db := sql.OpenDB(r)
	t.Cleanup(func() { _ = db.Close() })
	return db, r
}

func (r *recorder) Driver() driver.Driver { return r.driver }

func (r *recorder) Connect(context.Context) (driver.Conn, error) {
	conn, err := r.driver.Open(r.dsn)
	if err != nil {
		return nil, err
	}
	return recordedConn{conn, r}, nil
}

func (r *recorder) keep(text string, args []driver.NamedValue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := statement{text: text}
	for _, arg := range args {
		s.args = append(s.args, arg.Value)
	}
	r.sent = append(r.sent, s)
}

// take returns the statements that were sent since the last call.
func (r *recorder) take() []statement {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent
	r.sent = nil
	return sent
}

func (s statement) plan(t testing.TB, db *sql.DB) []string {
	rows, err := db.QueryContext(context.Background(), "EXPLAIN QUERY PLAN "+s.text, s.args...)
	require.NoError(t, err, s.text)
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
		lines = append(lines, detail)
	}
	require.NoError(t, rows.Err())
	return lines
}

func (s statement) reads() bool {
	for _, word := range []string{"SELECT", "UPDATE", "DELETE"} {
		if strings.HasPrefix(s.text, word) {
			return true
		}
	}
	return false
}

type recordedConn struct {
	driver.Conn
	r *recorder
}

func (c recordedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.r.keep("BEGIN", nil)
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c recordedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.r.keep(query, args)
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c recordedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.r.keep(query, args)
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}
