package txwatch

import (
	"context"
	"database/sql/driver"
)

// watchedStmt is a prepared statement. A probe (see Question) is not sent to the server. So the field inner stays nil
// if the statement was prepared for a probe. The first run with another context then prepares the statement on the
// server.
type watchedStmt struct {
	conn  *watchedConn
	inner driver.Stmt
	query string
	kind  sqlKind
}

var (
	_ driver.Stmt              = (*watchedStmt)(nil)
	_ driver.StmtExecContext   = (*watchedStmt)(nil)
	_ driver.StmtQueryContext  = (*watchedStmt)(nil)
	_ driver.NamedValueChecker = (*watchedStmt)(nil)
	_ columnConverter          = convertingStmt{}
)

func (s *watchedStmt) prepare(ctx context.Context) error {
	inner, err := connPrepare(ctx, s.conn.inner, answering(s.query))
	if busy := s.conn.busy(err); busy != nil {
		return busy
	}
	if err != nil {
		s.conn.afterError(err)
		return err
	}
	s.inner = inner
	return nil
}

// ready returns an error if the statement must not run.
func (s *watchedStmt) ready(ctx context.Context) error {
	if err := s.conn.beforeStatement(ctx, s.kind); err != nil {
		return err
	}
	if s.inner != nil {
		return nil
	}
	return s.prepare(ctx)
}

func (s *watchedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if e := unfilled(ctx); e != nil {
		s.conn.enlist(ctx, e)
		return driver.ResultNoRows, nil
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	result, err := stmtExec(ctx, s.inner, args)
	if err = s.conn.afterStatement(s.kind, s.query, err); err != nil {
		return nil, err
	}
	return result, nil
}

func (s *watchedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if e := unfilled(ctx); e != nil {
		s.conn.enlist(ctx, e)
		return noRows{}, nil
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	rows, err := stmtQuery(ctx, s.inner, args)
	if err = s.conn.afterStatement(s.kind, s.query, err); err != nil {
		return nil, err
	}
	return s.conn.watchRows(rows), nil
}

func (s *watchedStmt) Exec(args []driver.Value) (driver.Result, error) {
	return s.ExecContext(context.Background(), named(args))
}

func (s *watchedStmt) Query(args []driver.Value) (driver.Rows, error) {
	return s.QueryContext(context.Background(), named(args))
}

// NumInput returns -1 until the statement is prepared, so that the driver checks the number of arguments.
func (s *watchedStmt) NumInput() int {
	if s.inner == nil {
		return -1
	}
	return s.inner.NumInput()
}

func (s *watchedStmt) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := s.inner.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	if checker, ok := s.conn.inner.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

func (s *watchedStmt) Close() error {
	if s.inner == nil {
		return nil
	}
	return s.inner.Close()
}

// A statement that implements ColumnConverter must return a converter, so this is a separate type.
type convertingStmt struct{ *watchedStmt }

func (s convertingStmt) ColumnConverter(i int) driver.ValueConverter {
	return s.inner.(columnConverter).ColumnConverter(i)
}
