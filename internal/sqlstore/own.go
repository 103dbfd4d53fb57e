package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/txwatch"
)

const ownPoolSize = 4

type setUp func(ctx context.Context, conn driver.ExecerContext) error

// openOwn opens the library's own pool, whose sessions are set up once, so that BEGIN takes a single round trip.
func openOwn(users *txwatch.Connector, opened *atomic.Int64, set setUp) *sql.DB {
	db := sql.OpenDB(ownConnector{users.Inner(), users, opened, set})
	db.SetMaxOpenConns(ownPoolSize)
	db.SetMaxIdleConns(ownPoolSize)
	return db
}

type ownConnector struct {
	driver.Connector
	users           *txwatch.Connector
	connectionCount *atomic.Int64
	setUp           setUp
}

func (c ownConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	ownedConn := &ownConn{Conn: conn, users: c.users, openedAt: time.Now()}
	if err := c.setUp(ctx, ownedConn); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("compensator: set up a connection: %w", err)
	}
	c.connectionCount.Add(1)
	return ownedConn, nil
}

// ownConn is a connection of the library's own pool. It lives about as long as a connection of the user's pool. After a
// change of the host name or the proxy, both pools then move to the new server at about the same time.
type ownConn struct {
	driver.Conn
	users    *txwatch.Connector
	openedAt time.Time
}

const (
	// ownLife is the maximum age of a connection of the library's own pool while the user's pool has no open
	// connection.
	ownLife = 5 * time.Minute
	// ownLeast is the minimum age at which the library closes a connection of its own pool. The user's pool may open
	// and close connections all the time. Without this minimum age, the library's pool would also open and close
	// connections all the time.
	ownLeast = 5 * time.Second
)

// outlived reports whether c must be closed. A ConnMaxLifetime makes the user's pool close its old connections, but
// database/sql does not show this setting. So outlived looks at the oldest connection of the user's pool. If c is even
// older, the user's pool no longer keeps connections as old as c. Then c must be closed, too. If the user's pool has no
// open connection, c must also be closed when it is older than ownLife.
func (c *ownConn) outlived() bool {
	age := time.Since(c.openedAt)
	if age < ownLeast {
		return false
	}
	oldest, open := c.users.Oldest()
	return c.openedAt.Before(oldest) || !open && age > ownLife
}

func (c *ownConn) ResetSession(ctx context.Context) error {
	if c.outlived() {
		return driver.ErrBadConn
	}
	if inner, ok := c.Conn.(driver.SessionResetter); ok {
		return inner.ResetSession(ctx)
	}
	return nil
}

func (c *ownConn) IsValid() bool {
	inner, ok := c.Conn.(driver.Validator)
	return !ok || inner.IsValid()
}

func (c *ownConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if inner, ok := c.Conn.(driver.ExecerContext); ok {
		return inner.ExecContext(ctx, query, args)
	}
	return nil, driver.ErrSkip
}

func (c *ownConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if inner, ok := c.Conn.(driver.QueryerContext); ok {
		return inner.QueryContext(ctx, query, args)
	}
	return nil, driver.ErrSkip
}

func (c *ownConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if inner, ok := c.Conn.(driver.ConnPrepareContext); ok {
		return inner.PrepareContext(ctx, query)
	}
	return c.Prepare(query)
}

func (c *ownConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if inner, ok := c.Conn.(driver.ConnBeginTx); ok {
		return inner.BeginTx(ctx, opts)
	}
	return c.Begin() //nolint:staticcheck // The driver has nothing newer.
}

func (c *ownConn) Ping(ctx context.Context) error {
	if inner, ok := c.Conn.(driver.Pinger); ok {
		return inner.Ping(ctx)
	}
	return nil
}

func (c *ownConn) CheckNamedValue(value *driver.NamedValue) error {
	if inner, ok := c.Conn.(driver.NamedValueChecker); ok {
		return inner.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

var (
	_ driver.SessionResetter    = (*ownConn)(nil)
	_ driver.Validator          = (*ownConn)(nil)
	_ driver.ExecerContext      = (*ownConn)(nil)
	_ driver.QueryerContext     = (*ownConn)(nil)
	_ driver.ConnPrepareContext = (*ownConn)(nil)
	_ driver.ConnBeginTx        = (*ownConn)(nil)
	_ driver.Pinger             = (*ownConn)(nil)
	_ driver.NamedValueChecker  = (*ownConn)(nil)
)
