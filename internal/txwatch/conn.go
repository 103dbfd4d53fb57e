package txwatch

import (
	"container/list"
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/processlog"
)

// watchedConn is a watched connection. It implements every optional interface of package driver. If the inner
// connection lacks an interface, watchedConn answers as database/sql would without it.
type watchedConn struct {
	inner     driver.Conn
	connector *Connector    // nil: the connection is borrowed
	place     *list.Element // element in connector.living
	borrowed  *borrowed     // nil: this package closes the connection
	touched   bool          // a statement was sent since the connection left the pool
	txWatch
}

var (
	_ driver.Conn               = (*watchedConn)(nil)
	_ driver.ConnBeginTx        = (*watchedConn)(nil)
	_ driver.ConnPrepareContext = (*watchedConn)(nil)
	_ driver.ExecerContext      = (*watchedConn)(nil)
	_ driver.QueryerContext     = (*watchedConn)(nil)
	_ driver.NamedValueChecker  = (*watchedConn)(nil)
	_ driver.Pinger             = (*watchedConn)(nil)
	_ driver.SessionResetter    = (*watchedConn)(nil)
	_ driver.Validator          = (*watchedConn)(nil)
)

func (c *watchedConn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *watchedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if err := c.doomed(); err != nil {
		return nil, err // The BEGIN would commit the open transaction.
	}
	tx, err := connBegin(ctx, c.inner, opts)
	// The session is inside a transaction, although nothing was sent since it left the pool. So an earlier user left it
	// open. If it went back to the pool as sound, it would be drawn again, and nothing would go on. If something was
	// sent, the caller began the transaction itself.
	if mysqlerr.IsInsideTransaction(err) && !c.touched {
		c.discard = true
		warnLeftOpen(ctx, err)
		return nil, driver.ErrBadConn // Nothing was sent, so database/sql tries the next connection.
	}
	// A transaction begun here belongs to the service, until the Question of Store.Begin says that it is the library's.
	c.touched, c.ours = true, nil
	c.begun(err)
	if err != nil {
		return nil, err
	}
	return &watchedDriverTx{conn: c, inner: tx}, nil
}

func (c *watchedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if e := unfilled(ctx); e != nil {
		c.enlist(ctx, e)
		return driver.ResultNoRows, nil
	}
	kind := kindOf(query)
	if err := c.before(ctx, kind); err != nil {
		return nil, err
	}
	result, err := connExec(ctx, c.inner, query, args)
	if err == driver.ErrSkip {
		return nil, err // Nothing was sent. database/sql prepares the statement instead, and comes through watchedStmt.
	}
	if err = c.after(kind, query, err); err != nil {
		return nil, err
	}
	return result, nil
}

func (c *watchedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if e := unfilled(ctx); e != nil {
		c.enlist(ctx, e)
		return noRows{}, nil
	}
	kind := kindOf(query)
	if err := c.before(ctx, kind); err != nil {
		return nil, err
	}
	rows, err := connQuery(ctx, c.inner, answering(query), args)
	if err == driver.ErrSkip {
		return nil, err
	}
	if err = c.after(kind, query, err); err != nil {
		return nil, err
	}
	return c.watchRows(rows), nil
}

func (c *watchedConn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// PrepareContext sends nothing for a probe. The caller may keep the returned statement and run it later with another
// context. So the statement is prepared on the server when it first runs outside a probe.
func (c *watchedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt := &watchedStmt{conn: c, query: query, kind: kindOf(query)}
	if unfilled(ctx) != nil {
		return stmt, nil
	}
	if err := c.lost(stmt.kind); err != nil {
		return nil, err
	}
	if err := stmt.prepare(ctx); err != nil {
		return nil, err
	}
	if _, ok := stmt.inner.(columnConverter); ok {
		return convertingStmt{stmt}, nil
	}
	return stmt, nil
}

func (c *watchedConn) Ping(ctx context.Context) error {
	if pinger, ok := c.inner.(driver.Pinger); ok {
		return pinger.Ping(ctx)
	}
	return nil
}

// CheckNamedValue serves ExecContext and QueryContext. Prepared statements have their own method.
func (c *watchedConn) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := c.inner.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	if !executes(c.inner) {
		return nil // database/sql prepares a statement instead, and that statement checks the arguments.
	}
	return driver.ErrSkip
}

func (c *watchedConn) ResetSession(ctx context.Context) error {
	c.reset()
	c.touched = false
	if c.place != nil {
		c.place.Value.(*living).handedOut()
	}
	if c.discard {
		return driver.ErrBadConn
	}
	if resetter, ok := c.inner.(driver.SessionResetter); ok {
		return resetter.ResetSession(ctx)
	}
	return nil
}

// IsValid implements driver.Validator. database/sql calls it whenever the connection returns to the pool.
func (c *watchedConn) IsValid() bool {
	if c.place != nil {
		c.place.Value.(*living).putBack()
	}
	if c.discard || c.unended {
		return false
	}
	if validator, ok := c.inner.(driver.Validator); ok {
		return validator.IsValid()
	}
	return true
}

// Close also ends the borrowing of a borrowed connection. A connection that is still inside a transaction is not given
// back as sound.
func (c *watchedConn) Close() error {
	if c.borrowed != nil {
		c.borrowed.end(!c.discard && c.state == txClosed)
		c.end(c.dropped())
		return nil
	}
	if c.place != nil {
		c.connector.forget(c.place) // A second Close changes nothing, because the element is in no list any more.
	}
	err := c.inner.Close()
	c.end(c.dropped())
	return err
}

// before refuses a statement whose transaction is over. It also refuses a COMMIT sent as text, under the same
// conditions as watchedDriverTx.Commit, and sends a ROLLBACK instead. It refuses an XA commit or prepare without a
// ROLLBACK, because the coordinator must roll it back everywhere.
func (c *watchedConn) before(ctx context.Context, kind sqlKind) error {
	c.touched = true
	// A ROLLBACK does no harm in any state. It is the way out if the server cannot be asked.
	if c.mustKnow() && kind != sqlRollback {
		if err := c.askServer(ctx); err != nil {
			return fmt.Errorf("compensator: ask whether the transaction is still open: %w", err)
		}
	}
	if err := c.lost(kind); err != nil {
		return err
	}
	switch kind {
	case sqlCommit, sqlCommitChain:
		if refusal := c.refusal(); refusal != nil {
			return c.refused(refusal, c.send(ctx, "ROLLBACK"))
		}
	case sqlXAPrepare, sqlXACommit:
		return c.refusal()
	// Each of these commits the open transaction, or may commit it. That would keep the business change without its
	// entry (G2).
	case sqlBegin, sqlDDL, sqlDoubt, sqlAutocommit, sqlXAStart:
		return c.doomed()
	}
	return nil
}

// enlist answers a probe. It takes no round trip unless the state is in doubt.
func (c *watchedConn) enlist(ctx context.Context, e *Question) {
	var doubt error
	if c.state == txDoubtful {
		doubt = c.askServer(ctx)
	}
	e.watched, e.Connector = c.current(), c.connector
	if e.Ours {
		c.ours = e.watched
	}
	// If the transaction is not known to be open, treat it as closed. An entry recorded into it might be durable on its
	// own (G2).
	if doubt != nil {
		e.watched.suspend(fmt.Errorf("%w: %w", processlog.ErrNoTransaction, doubt))
	}
}

// send runs a statement of this package. The state of the connection does not follow such statements.
func (c *watchedConn) send(ctx context.Context, query string) error {
	_, err := connExec(ctx, c.inner, query, nil)
	if err != driver.ErrSkip {
		return err
	}
	stmt, err := connPrepare(ctx, c.inner, query)
	if err != nil {
		return err
	}
	defer stmt.Close()
	_, err = stmtExec(ctx, stmt, nil)
	return err
}
