// Package txwatch wraps a database driver so that the end of every transaction on its connections is seen: whether it
// was committed, rolled back by somebody or by the server, or nobody knows.
//
// Only the connection can see that. After a swallowed deadlock every handle of package sql looks open, and each
// statement commits by itself (G2). So what it does not know is a doubt, and a doubt is no open transaction; it asks the
// server nothing that it can know.
//
// The root package opens it and asks it; the store on SQL asks it, too. It knows drivers and statements, and nothing of
// entries. A connection serves one goroutine at a time, and so does what is known of it; a Tx may be asked by any. It
// starts a goroutine for each loan of a connection (borrower.go), which ends with the loan: whoever closes a lent
// connection waits for it.
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

// Connector is a driver's connector whose connections are watched.
type Connector struct {
	inner  driver.Connector
	Opened atomic.Int64 // connections so far

	mu     sync.Mutex // guards the fields below
	living list.List  // each open connection as a *living, the oldest first
	last   time.Time  // when the last one was opened that is not among them any more
}

// living is an open connection of a Connector.
type living struct {
	opened time.Time
	out    atomic.Int64 // how old it was when the pool handed it out, ns; -1 while it is in the pool
}

// heldAfter is how long a connection is in use before it counts as held. A service may hold one for as long as it runs, for a
// lock of its own. The pool's lifetimes do not reach such a connection, so its age tells nothing of them.
const heldAfter = 10 * time.Second

// held reports whether the connection has been in use for long.
func (l *living) held() bool {
	out := l.out.Load()
	return out >= 0 && time.Since(l.opened)-time.Duration(out) > heldAfter
}

// handedOut and putBack follow the connection out of the pool and back.
func (l *living) handedOut() { l.out.Store(int64(time.Since(l.opened))) }
func (l *living) putBack()   { l.out.Store(-1) }

var (
	_ driver.Connector = (*Connector)(nil)
	_ io.Closer        = (*Connector)(nil)
	_ driver.Driver    = Driver{}
)

// Wrap makes every connection of inner a watched one.
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
	c.Opened.Add(1)
	return c.watch(conn), nil
}

// watch wraps a connection that was just opened.
func (c *Connector) watch(conn driver.Conn) *watchedConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &watchedConn{inner: conn, home: c, place: c.living.PushBack(&living{opened: time.Now()})}
}

// forget takes a connection that is closed off the living ones.
func (c *Connector) forget(place *list.Element) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if opened := place.Value.(*living).opened; opened.After(c.last) {
		c.last = opened
	}
	c.living.Remove(place)
}

// Oldest is when the oldest of the open connections was opened that nobody holds. Where all that are open are held, it is when
// the last of the closed ones was opened.
func (c *Connector) Oldest() (opened time.Time, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for place := c.living.Front(); place != nil; place = place.Next() {
		if l := place.Value.(*living); !l.held() {
			return l.opened, true
		}
	}
	return c.last, false
}

func (c *Connector) Driver() driver.Driver { return Driver{c} }

// Close is called by sql.DB.Close.
func (c *Connector) Close() error {
	if closer, ok := c.inner.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// Driver is what sql.DB.Driver returns; it leads back to the connector.
type Driver struct{ Connector *Connector }

func (d Driver) Open(name string) (driver.Conn, error) {
	conn, err := d.Connector.inner.Driver().Open(name)
	if err != nil {
		return nil, err
	}
	return d.Connector.watch(conn), nil
}

// Inner is the connector beneath, so that the library's own statements go through a pool that nobody watches.
func (c *Connector) Inner() driver.Connector { return c.inner }

// Question asks the connection beneath any handle for the transaction it has open. It travels in the
// context of a probe statement: a watched connection fills it and does not execute the text.
type Question struct {
	Ours    bool // the library has begun the transaction: nothing is sent once it is over
	watched *Tx
	Home    *Connector // the connection's
}

type enlistmentKey struct{}

// Ask returns a context to run one probe statement with, through the handle in question. If the
// handle is not watched the text really runs.
func Ask(ctx context.Context) (context.Context, *Question) {
	e := new(Question)
	return context.WithValue(ctx, enlistmentKey{}, e), e
}

// Tx is the transaction the probe found, never nil on a watched handle: with no transaction open its err is
// ErrNoTransaction. It is nil on any other handle.
func (e *Question) Tx() *Tx { return e.watched }

// unfilled returns the enlistment ctx carries, or nil when there is none or it has its answer: a context may
// be used again for real statements.
func unfilled(ctx context.Context) *Question {
	e, ok := ctx.Value(enlistmentKey{}).(*Question)
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
	if time.Duration(now-last) > report.Interval && leftOpenWarned.CompareAndSwap(last, now) {
		warnConnector(err)
	}
}

var leftOpenWarned atomic.Int64 // unix ns; of statements that are none of a Compensator's

// errLeftOpen names the cause, which is nowhere in the server's words.
var errLeftOpen = errors.New("compensator: a pooled connection was left inside a transaction (BEGIN without an end, autocommit=0 or completion_type=1 set on a session); it was thrown away")

// Answered reports whether ctx carries an enlistment that a connection has filled.
func Answered(ctx context.Context) bool {
	e, ok := ctx.Value(enlistmentKey{}).(*Question)
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
