package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

type pretendFile struct {
	writer  *writer
	writes  int
	without []string
}

func (f *pretendFile) Connect(context.Context) (driver.Conn, error) { return pretendConn{f}, nil }
func (f *pretendFile) Driver() driver.Driver                        { return nil }

type pretendConn struct{ f *pretendFile }

func (pretendConn) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrSkip }
func (pretendConn) Close() error                        { return nil }
func (pretendConn) Begin() (driver.Tx, error)           { return pretendConn{}, nil }
func (pretendConn) Commit() error                       { return nil }
func (pretendConn) Rollback() error                     { return nil }

func (c pretendConn) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	switch word, _, _ := strings.Cut(query, " "); word {
	case "INSERT", "UPDATE", "DELETE":
		c.f.writes++
		c.f.writer.mu.Lock()
		defer c.f.writer.mu.Unlock()
		if !c.f.writer.isTaken {
			c.f.without = append(c.f.without, query)
		}
	}
	return driver.RowsAffected(1), nil
}

// QueryContext answers the query frontOfKey with one row, which says that entry 1 has ended. It answers every other
// query with no row.
func (c pretendConn) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	if strings.HasPrefix(query, "SELECT t.entry_id, t.epoch") {
		return &pretendRows{[]driver.Value{int64(1), int64(0), int64(0)}}, nil
	}
	return &pretendRows{}, nil
}

type pretendRows struct{ row []driver.Value }

func (r *pretendRows) Columns() []string { return make([]string, len(r.row)) }
func (r *pretendRows) Close() error      { return nil }

func (r *pretendRows) Next(row []driver.Value) error {
	if r.row == nil {
		return io.EOF
	}
	copy(row, r.row)
	r.row = nil
	return nil
}

// A write without a turn would poll SQLite, and later transactions could write first.
func TestEveryWriteToASQLiteFileTakesATurn(t *testing.T) {
	file := &pretendFile{writer: new(writer)}
	db := sql.OpenDB(file)
	defer db.Close()
	name, err := parseTable(DefaultTable)
	require.NoError(t, err)
	s := newStore(sqliteDialect(), name, db)
	s.writer, s.timeout = file.writer, time.Minute
	turn := processlog.Position{BusinessType: "pay", Key: "a", ID: processlog.RowID(1)}
	outcome := processlog.Outcome{ID: turn.ID, To: processlog.Retrying}
	for name, write := range map[string]func(ctx context.Context) error{
		"Park": func(ctx context.Context) error {
			return s.Block(ctx, []processlog.BlockedEntry{{Position: turn}}, processlog.Token{1})
		},
		"Forget": func(ctx context.Context) error { return s.Forget(ctx, []processlog.Position{turn}) },
		"clear":  func(ctx context.Context) error { return s.clearNotes(ctx, "pay", []string{"a"}, false) },
		"wake": func(ctx context.Context) error {
			_, err := s.makeDue(ctx, []firstEntry{{Position: turn}}, new(leftOver))
			return err
		},
		"Settle": func(ctx context.Context) error {
			_, err := s.Settle(ctx, processlog.Token{1}, []processlog.Outcome{outcome})
			return err
		},
		"Release": func(ctx context.Context) error {
			_, err := s.Release(ctx, []processlog.ID{turn.ID}, processlog.Token{1})
			return err
		},
		"Renew": func(ctx context.Context) error {
			_, err := s.Renew(ctx, []processlog.Held{{ID: turn.ID}}, time.Minute)
			return err
		},
		"BeginMark": func(ctx context.Context) error {
			_, err := s.BeginMark(ctx, "pay")
			return err
		},
		"Note":    func(ctx context.Context) error { return s.Note(ctx, processlog.ActionErase, processlog.AuditInfo{}) },
		"Operate": func(ctx context.Context) error { return s.Operate(ctx, processlog.Operation{Action: "pause"}) },
	} {
		file.writes, file.without = 0, nil
		require.NoError(t, write(t.Context()), name)
		assert.Positive(t, file.writes, name)
		assert.Empty(t, file.without, name)
		require.False(t, file.writer.isTaken, "%s gives its turn back", name)
	}
}
