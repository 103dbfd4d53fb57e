package sqlstore_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"
	"time"
)

// clockConnector connects to a MariaDB or MySQL whose clock is this process's, and in a testing/synctest
// bubble the bubble's: each session is told the time before each statement. The server then stores and
// compares the very milliseconds that a double in the bubble does, and a month passes at once.
//
// Nobody can be waited for in such a bubble, because its clock stands still while a server is asked. So a
// session waits for a row lock as briefly as the server allows.
type clockConnector struct {
	driver.Connector
	lockWait string // s
}

func (c clockConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	clocked := &clockConn{Conn: conn, lockWait: c.lockWait}
	_, err = clocked.ExecContext(ctx, "SET SESSION "+ownLockWait, nil)
	return clocked, err
}

// ownLockWait is how the store sets up connections of its own.
const ownLockWait = "innodb_lock_wait_timeout=2"

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
	// The server reads a floating-point number, and cuts it (MariaDB) or rounds it (MySQL): a quarter of a
	// microsecond more leaves it the same one.
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

// realClock takes out of a statement what keeps the session's clock from it.
var realClock = strings.NewReplacer("timestamp=0, ", "", "ABS(UNIX_TIMESTAMP(SYSDATE())-@@timestamp)<10000", "1=1")

// text is what is sent of a statement: by the bubble's clock, and waiting for no lock.
func (c *clockConn) text(query string) string {
	query = realClock.Replace(query)
	wait := "innodb_lock_wait_timeout=" + c.lockWait
	if c.lockWait == "0" && strings.Contains(query, "SKIP LOCKED") { // MariaDB fails it with 1180 otherwise
		wait = "innodb_lock_wait_timeout=1"
		if !strings.Contains(query, ownLockWait) {
			return "SET STATEMENT " + wait + " FOR " + query
		}
	}
	return strings.ReplaceAll(query, ownLockWait, wait)
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
