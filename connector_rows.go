package compensator

import (
	"database/sql/driver"
	"io"
	"reflect"
)

// connectorRows watches rows being read: a locking read can meet its deadlock after the first row.
type connectorRows struct {
	inner driver.Rows
	conn  *connectorConn
}

var (
	_ driver.Rows                           = (*connectorRows)(nil)
	_ driver.RowsNextResultSet              = (*connectorRows)(nil)
	_ driver.RowsColumnTypeScanType         = (*connectorRows)(nil)
	_ driver.RowsColumnTypeDatabaseTypeName = (*connectorRows)(nil)
	_ driver.RowsColumnTypeLength           = (*connectorRows)(nil)
	_ driver.RowsColumnTypeNullable         = (*connectorRows)(nil)
	_ driver.RowsColumnTypePrecisionScale   = (*connectorRows)(nil)
)

// watchRows leaves rows alone that are read outside a transaction: there is nothing to abort.
func (c *connectorConn) watchRows(rows driver.Rows) driver.Rows {
	if c.state == txClosed {
		return rows
	}
	return &connectorRows{inner: rows, conn: c}
}

func (r *connectorRows) failed(err error) error {
	if err != nil && err != io.EOF {
		r.conn.failed(err)
	}
	return err
}

func (r *connectorRows) Columns() []string              { return r.inner.Columns() }
func (r *connectorRows) Next(dest []driver.Value) error { return r.failed(r.inner.Next(dest)) }
func (r *connectorRows) Close() error                   { return r.failed(r.inner.Close()) }

func (r *connectorRows) HasNextResultSet() bool {
	sets, ok := r.inner.(driver.RowsNextResultSet)
	return ok && sets.HasNextResultSet()
}

func (r *connectorRows) NextResultSet() error {
	if sets, ok := r.inner.(driver.RowsNextResultSet); ok {
		return r.failed(sets.NextResultSet())
	}
	return io.EOF
}

func (r *connectorRows) ColumnTypeScanType(i int) reflect.Type {
	if types, ok := r.inner.(driver.RowsColumnTypeScanType); ok {
		return types.ColumnTypeScanType(i)
	}
	return reflect.TypeFor[any]()
}

func (r *connectorRows) ColumnTypeDatabaseTypeName(i int) string {
	if types, ok := r.inner.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return types.ColumnTypeDatabaseTypeName(i)
	}
	return ""
}

func (r *connectorRows) ColumnTypeLength(i int) (length int64, ok bool) {
	if types, is := r.inner.(driver.RowsColumnTypeLength); is {
		return types.ColumnTypeLength(i)
	}
	return 0, false
}

func (r *connectorRows) ColumnTypeNullable(i int) (nullable, ok bool) {
	if types, is := r.inner.(driver.RowsColumnTypeNullable); is {
		return types.ColumnTypeNullable(i)
	}
	return false, false
}

func (r *connectorRows) ColumnTypePrecisionScale(i int) (precision, scale int64, ok bool) {
	if types, is := r.inner.(driver.RowsColumnTypePrecisionScale); is {
		return types.ColumnTypePrecisionScale(i)
	}
	return 0, 0, false
}

// noRows answers a probe sent as a query.
type noRows struct{}

func (noRows) Columns() []string         { return []string{} }
func (noRows) Next([]driver.Value) error { return io.EOF }
func (noRows) Close() error              { return nil }
