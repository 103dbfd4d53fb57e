package txwatch

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// The functions below fall back as database/sql does for drivers without contexts. The old interfaces are declared here,
// because package driver marks its own as deprecated.
type (
	execer interface {
		Exec(string, []driver.Value) (driver.Result, error)
	}
	queryer interface {
		Query(string, []driver.Value) (driver.Rows, error)
	}
	beginner   interface{ Begin() (driver.Tx, error) }
	stmtExecer interface {
		Exec([]driver.Value) (driver.Result, error)
	}
	stmtQueryer interface {
		Query([]driver.Value) (driver.Rows, error)
	}
	columnConverter interface {
		ColumnConverter(int) driver.ValueConverter
	}
)

func executes(conn driver.Conn) bool {
	switch conn.(type) {
	case driver.ExecerContext, execer, driver.QueryerContext, queryer:
		return true
	}
	return false
}

func connExec(ctx context.Context, conn driver.Conn, query string, args []driver.NamedValue) (driver.Result, error) {
	if newer, ok := conn.(driver.ExecerContext); ok {
		return newer.ExecContext(ctx, query, args)
	}
	older, ok := conn.(execer)
	if !ok {
		return nil, driver.ErrSkip
	}
	values, err := unnamed(ctx, args)
	if err != nil {
		return nil, err
	}
	return older.Exec(query, values)
}

func connQuery(ctx context.Context, conn driver.Conn, query string, args []driver.NamedValue) (driver.Rows, error) {
	if newer, ok := conn.(driver.QueryerContext); ok {
		return newer.QueryContext(ctx, query, args)
	}
	older, ok := conn.(queryer)
	if !ok {
		return nil, driver.ErrSkip
	}
	values, err := unnamed(ctx, args)
	if err != nil {
		return nil, err
	}
	return older.Query(query, values)
}

func connPrepare(ctx context.Context, conn driver.Conn, query string) (driver.Stmt, error) {
	if newer, ok := conn.(driver.ConnPrepareContext); ok {
		return newer.PrepareContext(ctx, query)
	}
	stmt, err := conn.Prepare(query)
	if err == nil && ctx.Err() != nil {
		stmt.Close()
		return nil, ctx.Err()
	}
	return stmt, err
}

func connBegin(ctx context.Context, conn driver.Conn, opts driver.TxOptions) (driver.Tx, error) {
	if newer, ok := conn.(driver.ConnBeginTx); ok {
		return newer.BeginTx(ctx, opts)
	}
	if sql.IsolationLevel(opts.Isolation) != sql.LevelDefault {
		return nil, errors.New("sql: driver does not support non-default isolation level")
	}
	if opts.ReadOnly {
		return nil, errors.New("sql: driver does not support read-only transactions")
	}
	tx, err := beginner(conn).Begin()
	if err == nil && ctx.Err() != nil {
		tx.Rollback()
		return nil, ctx.Err()
	}
	return tx, err
}

func stmtExec(ctx context.Context, stmt driver.Stmt, args []driver.NamedValue) (driver.Result, error) {
	if newer, ok := stmt.(driver.StmtExecContext); ok {
		return newer.ExecContext(ctx, args)
	}
	values, err := unnamed(ctx, args)
	if err != nil {
		return nil, err
	}
	return stmtExecer(stmt).Exec(values)
}

func stmtQuery(ctx context.Context, stmt driver.Stmt, args []driver.NamedValue) (driver.Rows, error) {
	if newer, ok := stmt.(driver.StmtQueryContext); ok {
		return newer.QueryContext(ctx, args)
	}
	values, err := unnamed(ctx, args)
	if err != nil {
		return nil, err
	}
	return stmtQueryer(stmt).Query(values)
}

// unnamed also checks ctx, because a driver without contexts cannot be stopped later.
func unnamed(ctx context.Context, args []driver.NamedValue) ([]driver.Value, error) {
	values := make([]driver.Value, len(args))
	for i, arg := range args {
		if arg.Name != "" {
			return nil, errors.New("sql: driver does not support the use of Named Parameters")
		}
		values[i] = arg.Value
	}
	return values, ctx.Err()
}

func named(values []driver.Value) []driver.NamedValue {
	args := make([]driver.NamedValue, len(values))
	for i, value := range values {
		args[i] = driver.NamedValue{Ordinal: i + 1, Value: value}
	}
	return args
}

// ConnectorOf returns the connector that sql.Open would use, also for drivers without driver.DriverContext.
func ConnectorOf(d driver.Driver, name string) (driver.Connector, error) {
	if newer, ok := d.(driver.DriverContext); ok {
		return newer.OpenConnector(name)
	}
	return opener{d, name}, nil
}

type opener struct {
	driver driver.Driver
	name   string
}

func (o opener) Connect(context.Context) (driver.Conn, error) { return o.driver.Open(o.name) }
func (o opener) Driver() driver.Driver                        { return o.driver }
