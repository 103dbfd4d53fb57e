package sqlstore_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/txwatch"
)

// clockConnector makes a server's sessions use the clock of a testing/synctest bubble. That clock stands still while a
// statement waits inside the server, so no statement may wait there.
type clockConnector struct {
	driver.Connector
	lockWait string // seconds
}

func (c clockConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	clocked := &clockConn{Conn: conn, lockWait: c.lockWait}
	_, err = clocked.ExecContext(ctx, "SET SESSION "+txwatch.ShortRowWait, nil)
	return clocked, err
}

type clockConn struct {
	driver.Conn
	lockWait string
	told     time.Time
}

func (c *clockConn) tellTime(ctx context.Context) error {
	now := time.Now()
	if now.Equal(c.told) {
		return nil
	}
	// MariaDB truncates a floating-point number to whole microseconds, and MySQL rounds it. With a quarter of a
	// microsecond added, both servers get the same number of microseconds.
	set := fmt.Sprintf("SET @@timestamp=%d.%06d25", now.Unix(), now.Nanosecond()/1000)
	if _, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, set, nil); err != nil {
		return err
	}
	c.told = now
	return nil
}

func (c *clockConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.tellTime(ctx); err != nil {
		return nil, err
	}
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, c.text(query), args)
}

func (c *clockConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.tellTime(ctx); err != nil {
		return nil, err
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, c.text(query), args)
}

var realClock = strings.NewReplacer("timestamp=0, ", "", "timestamp=DEFAULT, ", "", "ABS(UNIX_TIMESTAMP(SYSDATE())-@@timestamp)<10000", "1=1")

func (c *clockConn) text(query string) string {
	query = realClock.Replace(query)
	wait := "innodb_lock_wait_timeout=" + c.lockWait
	// If the lock wait is 0, MariaDB fails a SKIP LOCKED statement with error 1180. So the lock wait is 1 s here.
	if c.lockWait == "0" && strings.Contains(query, "SKIP LOCKED") {
		wait = "innodb_lock_wait_timeout=1"
		if !strings.Contains(query, txwatch.ShortRowWait) {
			return "SET STATEMENT " + wait + " FOR " + query
		}
	}
	return strings.ReplaceAll(query, txwatch.ShortRowWait, wait)
}

func (c *clockConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, c.text(query))
	if err != nil {
		return nil, err
	}
	return &clockStmt{stmt, c}, nil
}

func (c *clockConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c *clockConn) CheckNamedValue(value *driver.NamedValue) error {
	return c.Conn.(driver.NamedValueChecker).CheckNamedValue(value)
}

type clockStmt struct {
	driver.Stmt
	conn *clockConn
}

func (s *clockStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.conn.tellTime(ctx); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s *clockStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.conn.tellTime(ctx); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

func (s *clockStmt) CheckNamedValue(value *driver.NamedValue) error {
	return s.conn.CheckNamedValue(value)
}
