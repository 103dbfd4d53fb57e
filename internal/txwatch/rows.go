package txwatch

import (
	"database/sql/driver"
	"io"
	"reflect"
)

// watchedRows watches rows, because a locking read can fail with a deadlock after its first row.
type watchedRows struct {
	inner  driver.Rows
	conn   *watchedConn
	closed bool
}

var (
	_ driver.Rows                           = (*watchedRows)(nil)
	_ driver.RowsNextResultSet              = (*watchedRows)(nil)
	_ driver.RowsColumnTypeScanType         = (*watchedRows)(nil)
	_ driver.RowsColumnTypeDatabaseTypeName = (*watchedRows)(nil)
	_ driver.RowsColumnTypeLength           = (*watchedRows)(nil)
	_ driver.RowsColumnTypeNullable         = (*watchedRows)(nil)
	_ driver.RowsColumnTypePrecisionScale   = (*watchedRows)(nil)
)

// watchRows watches rows, because an error of the rows may end the transaction. If no transaction is open, watchRows
// returns rows unchanged.
func (c *watchedConn) watchRows(rows driver.Rows) driver.Rows {
	if c.state == txClosed {
		return rows
	}
	c.reading++
	return &watchedRows{inner: rows, conn: c}
}

func (r *watchedRows) afterError(err error) error {
	if err != nil && err != io.EOF {
		r.conn.afterError(err)
	}
	return err
}

func (r *watchedRows) Columns() []string              { return r.inner.Columns() }
func (r *watchedRows) Next(dest []driver.Value) error { return r.afterError(r.inner.Next(dest)) }

func (r *watchedRows) Close() error {
	if !r.closed {
		r.closed = true
		r.conn.reading--
	}
	return r.afterError(r.inner.Close())
}

func (r *watchedRows) HasNextResultSet() bool {
	sets, ok := r.inner.(driver.RowsNextResultSet)
	return ok && sets.HasNextResultSet()
}

func (r *watchedRows) NextResultSet() error {
	if sets, ok := r.inner.(driver.RowsNextResultSet); ok {
		return r.afterError(sets.NextResultSet())
	}
	return io.EOF
}

func (r *watchedRows) ColumnTypeScanType(i int) reflect.Type {
	if types, ok := r.inner.(driver.RowsColumnTypeScanType); ok {
		return types.ColumnTypeScanType(i)
	}
	return reflect.TypeFor[any]()
}

func (r *watchedRows) ColumnTypeDatabaseTypeName(i int) string {
	if types, ok := r.inner.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return types.ColumnTypeDatabaseTypeName(i)
	}
	return ""
}

func (r *watchedRows) ColumnTypeLength(i int) (length int64, ok bool) {
	if types, is := r.inner.(driver.RowsColumnTypeLength); is {
		return types.ColumnTypeLength(i)
	}
	return 0, false
}

func (r *watchedRows) ColumnTypeNullable(i int) (nullable, ok bool) {
	if types, is := r.inner.(driver.RowsColumnTypeNullable); is {
		return types.ColumnTypeNullable(i)
	}
	return false, false
}

func (r *watchedRows) ColumnTypePrecisionScale(i int) (precision, scale int64, ok bool) {
	if types, is := r.inner.(driver.RowsColumnTypePrecisionScale); is {
		return types.ColumnTypePrecisionScale(i)
	}
	return 0, 0, false
}

type noRows struct{}

func (noRows) Columns() []string         { return []string{} }
func (noRows) Next([]driver.Value) error { return io.EOF }
func (noRows) Close() error              { return nil }
