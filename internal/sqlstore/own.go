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

// ownPoolSize is the maximum number of connections in the library's own pool.
const ownPoolSize = 4

// setUp makes the session of a new connection independent of the DSN and of the server's defaults.
type setUp func(ctx context.Context, conn driver.ExecerContext) error

// openOwn opens the library's own pool, in addition to the user's pool. Each connection is set up once. So no setting
// leaks into the user's sessions, and BEGIN takes a single round trip.
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

// Connect opens a connection and sets up its session.
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

// ownConn is a connection of the library's own pool. It lives about as long as the user's connections. So if the host
// name or proxy begins to lead to another server, both pools move to this server at about the same time.
type ownConn struct {
	driver.Conn
	users    *txwatch.Connector
	openedAt time.Time
}

const (
	// ownLife is the maximum age of a connection of the own pool as long as the user's pool has no open connection.
	ownLife = 5 * time.Minute
	// ownLeast is the minimum age at which an own connection is closed. The user's pool may open connections all the time.
	// Without ownLeast, the own pool would then also close and open its connections all the time.
	ownLeast = 5 * time.Second
)

// outlived reports whether c is too old and must be closed. The user's pool closes connections that are older than its
// ConnMaxLifetime, which database/sql does not show. If the pool's oldest connection is younger than c, the pool has
// closed all connections as old as c, and c must be closed too. If the user's pool has no open connection, c may live for
// ownLife.
func (c *ownConn) outlived() bool {
	age := time.Since(c.openedAt)
	if age < ownLeast {
		return false
	}
	oldest, open := c.users.Oldest()
	return c.openedAt.Before(oldest) || !open && age > ownLife
}

// ResetSession implements driver.SessionResetter. The pool calls it before it hands the connection out.
func (c *ownConn) ResetSession(ctx context.Context) error {
	if c.outlived() {
		return driver.ErrBadConn
	}
	if inner, ok := c.Conn.(driver.SessionResetter); ok {
		return inner.ResetSession(ctx)
	}
	return nil
}

// IsValid implements driver.Validator.
func (c *ownConn) IsValid() bool {
	inner, ok := c.Conn.(driver.Validator)
	return !ok || inner.IsValid()
}

// ExecContext implements driver.ExecerContext.
func (c *ownConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if inner, ok := c.Conn.(driver.ExecerContext); ok {
		return inner.ExecContext(ctx, query, args)
	}
	return nil, driver.ErrSkip
}

// QueryContext implements driver.QueryerContext.
func (c *ownConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if inner, ok := c.Conn.(driver.QueryerContext); ok {
		return inner.QueryContext(ctx, query, args)
	}
	return nil, driver.ErrSkip
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *ownConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if inner, ok := c.Conn.(driver.ConnPrepareContext); ok {
		return inner.PrepareContext(ctx, query)
	}
	return c.Prepare(query)
}

// BeginTx implements driver.ConnBeginTx.
func (c *ownConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if inner, ok := c.Conn.(driver.ConnBeginTx); ok {
		return inner.BeginTx(ctx, opts)
	}
	return c.Begin() //nolint:staticcheck // The driver has nothing newer.
}

// Ping implements driver.Pinger.
func (c *ownConn) Ping(ctx context.Context) error {
	if inner, ok := c.Conn.(driver.Pinger); ok {
		return inner.Ping(ctx)
	}
	return nil
}

// CheckNamedValue implements driver.NamedValueChecker.
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
