package compensator

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/report"
)

// Connector wraps a database driver's connector so that the end of every transaction on it is seen. Entries
// recorded through such a database are announced by the transaction's own Commit: no call site changes, and
// Committed need not be called.
//
//	db := sql.OpenDB(compensator.Connector(connector))
//
// Everything else behaves as it did: each statement costs what it cost, and every optional interface of the
// driver is passed on. What differs:
//   - db.Driver() and sql.Conn.Raw give the wrapper, not the driver's own types.
//   - Commit refuses, and rolls back, a transaction in which an entry could not be written
//     (ErrNotRecorded) or which the server has already rolled back on its own (ErrTxAborted).
//   - Once the server has rolled such a transaction back, its statements return ErrTxAborted: sent, they
//     would commit by themselves.
//   - A connection on which a statement was refused because the server is read-only (1290, 1792, 1836) is closed
//     once it comes back to the pool: after a switchover the next one leads to the new primary.
//   - When the connection breaks around COMMIT, the error also wraps ErrCommitUnknown.
//   - A pooled connection that was left inside a transaction is thrown away when a BeginTx with an isolation
//     level finds it so.
//
// ErrCommitUnknown, ErrTxAborted and refusals of Commit concern only transactions an entry was recorded in. How
// statements and errors change a transaction is known of MySQL, MariaDB and what speaks like them.
func Connector(inner driver.Connector) driver.Connector {
	if c, ok := inner.(*connector); ok {
		return c
	}
	return &connector{inner: inner}
}

type connector struct {
	inner  driver.Connector
	opened atomic.Int64 // connections so far
}

var (
	_ driver.Connector = (*connector)(nil)
	_ io.Closer        = (*connector)(nil)
	_ driver.Driver    = connectorDriver{}
)

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c.opened.Add(1)
	return &connectorConn{inner: conn, home: c}, nil
}

func (c *connector) Driver() driver.Driver { return connectorDriver{c} }

// Close is called by sql.DB.Close.
func (c *connector) Close() error {
	if closer, ok := c.inner.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// connectorDriver is what sql.DB.Driver returns; it leads back to the connector.
type connectorDriver struct{ connector *connector }

func (d connectorDriver) Open(name string) (driver.Conn, error) {
	conn, err := d.connector.inner.Driver().Open(name)
	if err != nil {
		return nil, err
	}
	return &connectorConn{inner: conn, home: d.connector}, nil
}

// watched returns the connector beneath Connector's when db was opened on one, so that the library's own
// statements go through a pool that nobody watches.
func watched(db *sql.DB) (inner driver.Connector, ok bool) {
	d, ok := db.Driver().(connectorDriver)
	if !ok {
		return nil, false
	}
	return d.connector.inner, true
}

// enlistment asks the connection beneath any handle for the transaction it has open. It travels in the
// context of a probe statement: a watched connection fills it and does not execute the text.
type enlistment struct {
	ours    bool // the library has begun the transaction: nothing is sent once it is over
	watched *watchedTx
	home    *connector // the connection's
}

type enlistmentKey struct{}

// withEnlistment returns a context to run one probe statement with, through the handle in question. If the
// handle is not watched the text really runs.
func withEnlistment(ctx context.Context) (context.Context, *enlistment) {
	e := new(enlistment)
	return context.WithValue(ctx, enlistmentKey{}, e), e
}

// tx is the transaction the probe found, never nil on a watched handle: with no transaction open its err is
// ErrNoTransaction. It is nil on any other handle.
func (e *enlistment) tx() *watchedTx { return e.watched }

// unfilled returns the enlistment ctx carries, or nil when there is none or it has its answer: a context may
// be used again for real statements.
func unfilled(ctx context.Context) *enlistment {
	e, ok := ctx.Value(enlistmentKey{}).(*enlistment)
	if !ok || e.watched != nil {
		return nil
	}
	return e
}

// warnLeftOpen reports a session that somebody left inside a transaction, and that is thrown away: to the Compensator
// whose statement met it, or to the log.
func warnLeftOpen(ctx context.Context, err error) {
	err = fmt.Errorf("%w: %w", errLeftOpen, err)
	if report.Send(ctx, report.Session, err) {
		return
	}
	now, last := time.Now().UnixNano(), leftOpenWarned.Load()
	if time.Duration(now-last) > complaintInterval && leftOpenWarned.CompareAndSwap(last, now) {
		warnConnector(err)
	}
}

var leftOpenWarned atomic.Int64 // unix ns; of statements that are none of a Compensator's

// errLeftOpen names the cause, which is nowhere in the server's words.
var errLeftOpen = errors.New("compensator: a pooled connection was left inside a transaction (BEGIN without an end, autocommit=0 or completion_type=1 set on a session); it was thrown away")

// answered reports whether ctx carries an enlistment that a connection has filled.
func answered(ctx context.Context) bool {
	e, ok := ctx.Value(enlistmentKey{}).(*enlistment)
	return ok && e.watched != nil
}

// connectorWarning receives what no caller can be told: an implicit commit, a panic in a hook. Nil logs.
var connectorWarning atomic.Pointer[func(error)]

func warnConnector(err error) {
	if report := connectorWarning.Load(); report != nil {
		(*report)(err)
		return
	}
	slog.Warn("compensator: connector", "err", err)
}
