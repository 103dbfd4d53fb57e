// Package txwatch wraps a database driver so that it sees how each transaction ends: committed, rolled back, or
// unknown. Only the connection can see that. For example, the server rolls a transaction back after a deadlock, and the
// caller ignores the error. The handle of database/sql then still looks open, but each further statement commits at
// once. An entry recorded with this handle would run, although its transaction was rolled back. See promise G2.
//
// A doubtful transaction never counts as open. The package asks the server only if the connection cannot know the
// state.
//
// The package knows drivers and statements, but no entries. A connection and its state serve one goroutine at a time. A
// Tx is safe for concurrent use. Each borrowed connection has one goroutine (borrow.go), and closing the connection
// waits for this goroutine.
package txwatch

import (
	"container/list"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/report"
)

// Connector is a driver.Connector whose connections are watched.
type Connector struct {
	inner driver.Connector

	mu      sync.Mutex // guards the fields below
	living  list.List  // open connections, each as a *living; the oldest is first
	lastLog time.Time  // time at which the youngest of the closed connections was opened
}

type living struct {
	opened       time.Time
	handedOutAge atomic.Int64 // age of the connection in ns when the pool last handed it out; -1 if the connection is in the pool
}

// heldAfter is how long a connection must be in use before it counts as held. The method Oldest ignores held
// connections. The user's pool closes no connection in use, so a held connection may be older than the lifetime limit
// of the pool.
const heldAfter = 10 * time.Second

func (l *living) held() bool {
	age := l.handedOutAge.Load()
	return age >= 0 && time.Since(l.opened)-time.Duration(age) > heldAfter
}

func (l *living) handedOut() { l.handedOutAge.Store(int64(time.Since(l.opened))) }
func (l *living) putBack()   { l.handedOutAge.Store(-1) }

var (
	_ driver.Connector = (*Connector)(nil)
	_ io.Closer        = (*Connector)(nil)
	_ driver.Driver    = Driver{}
)

// Wrap returns a connector whose connections are watched. If inner is a Connector, Wrap returns it unchanged.
func Wrap(inner driver.Connector) driver.Connector {
	if c, ok := inner.(*Connector); ok {
		return c
	}
	return &Connector{inner: inner}
}

func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return c.watch(conn), nil
}

func (c *Connector) watch(conn driver.Conn) *watchedConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &watchedConn{inner: conn, connector: c, place: c.living.PushBack(&living{opened: time.Now()})}
}

func (c *Connector) forget(place *list.Element) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if opened := place.Value.(*living).opened; opened.After(c.lastLog) {
		c.lastLog = opened
	}
	c.living.Remove(place)
}

// Oldest returns when the oldest open connection was opened, and true. It skips connections that are held: in use for
// longer than heldAfter. If no other connection is open, Oldest returns when the youngest closed connection was opened,
// and false.
func (c *Connector) Oldest() (opened time.Time, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for place := c.living.Front(); place != nil; place = place.Next() {
		if l := place.Value.(*living); !l.held() {
			return l.opened, true
		}
	}
	return c.lastLog, false
}

func (c *Connector) Driver() driver.Driver { return Driver{c} }

// Close implements io.Closer. sql.DB.Close calls it.
func (c *Connector) Close() error {
	if closer, ok := c.inner.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// Driver is what sql.DB.Driver returns.
type Driver struct{ Connector *Connector }

func (d Driver) Open(name string) (driver.Conn, error) {
	conn, err := d.Connector.inner.Driver().Open(name)
	if err != nil {
		return nil, err
	}
	return d.Connector.watch(conn), nil
}

// Inner returns the wrapped connector, for the library's own pool.
func (c *Connector) Inner() driver.Connector { return c.inner }

// Question is the context of a probe. A probe is a statement that asks which transaction is open on a connection. A
// watched connection, which a Connector made, writes the answer into the Question. It does not send the probe to the
// server.
type Question struct {
	context.Context
	Ours      bool // whether the library began the transaction. If so, the watched connection refuses all statements after the transaction has ended
	Discard   bool // whether to close the session after the transaction, if the library began it
	watched   *Tx
	Connector *Connector // the Connector of this connection
}

type enlistmentKey struct{}

// Ask returns a context for one probe, and the Question in this context. A connection that is not watched sends the
// probe to the server, and the Question stays without an answer.
func Ask(ctx context.Context) (context.Context, *Question) {
	e := &Question{Context: ctx}
	return e, e
}

// Value implements context.Context. A watched connection calls Value to find this Question, also in a context that was
// derived from it.
func (e *Question) Value(key any) any {
	if key == (enlistmentKey{}) {
		return e
	}
	return e.Context.Value(key)
}

// Tx returns the transaction that the probe found, or nil if the connection is not watched. If no transaction is open,
// the Err of the result is ErrNoTransaction.
func (e *Question) Tx() *Tx { return e.watched }

// unfilled returns the Question in ctx if the Question has no answer yet. Then the statement with this context is a
// probe. In all other cases unfilled returns nil, and the statement must be sent to the server. One of these cases is a
// Question that already has an answer, because callers may use the context of a probe again for other statements.
func unfilled(ctx context.Context) *Question {
	e, ok := ctx.Value(enlistmentKey{}).(*Question)
	if !ok || e.watched != nil {
		return nil
	}
	return e
}

func warnLeftOpen(ctx context.Context, err error) {
	err = fmt.Errorf("%w: %w", errLeftOpen, err)
	if report.Send(ctx, report.Session, err) {
		return
	}
	now, last := time.Now().UnixNano(), leftOpenWarned.Load()
	if time.Duration(now-last) > report.Interval && leftOpenWarned.CompareAndSwap(last, now) {
		warnConnector(err)
	}
}

// leftOpenWarned is the time, in ns since 1970, at which warnLeftOpen last logged a warning itself. It logs a warning
// itself only for a statement that belongs to no Compensator.
var leftOpenWarned atomic.Int64

var errLeftOpen = errors.New("compensator: a pooled connection was left inside a transaction (BEGIN without an end, autocommit=0 or completion_type=1 set on a session); it was thrown away")

func Answered(ctx context.Context) bool {
	e, ok := ctx.Value(enlistmentKey{}).(*Question)
	return ok && e.watched != nil
}

// connectorWarning receives the warnings that cannot be returned to a caller. If connectorWarning is nil, the warnings
// are logged.
var connectorWarning atomic.Pointer[func(error)]

func warnConnector(err error) {
	if report := connectorWarning.Load(); report != nil {
		(*report)(err)
		return
	}
	slog.Warn("compensator: connector", "err", err)
}
