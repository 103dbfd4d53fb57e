package txwatch

import (
	"container/list"
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/processlog"
)

// watchedConn is a watched connection. It implements every optional interface of package driver; what the
// inner connection lacks is answered as database/sql treats a lack of it.
type watchedConn struct {
	inner    driver.Conn
	home     *Connector    // nil: lent
	place    *list.Element // among the living of home
	borrowed *borrowed     // nil: the connection is ours to close
	touched  bool          // a statement has been sent since it left the pool
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
		return nil, err // it would commit what is open
	}
	tx, err := connBegin(ctx, c.inner, opts)
	// Nothing has been sent since it left the pool, so that somebody has left it inside a transaction: given back as
	// sound it would be drawn again, and everything stand still. Once something was sent, it is the caller's own
	// doing.
	if mysqlerr.IsInsideTransaction(err) && !c.touched {
		c.discard = true
		warnLeftOpen(ctx, err)
		return nil, driver.ErrBadConn // nothing has happened: package sql takes the next one
	}
	// What is begun here is the service's, until Store.Begin says otherwise by its question.
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
		return nil, err // nothing was sent: database/sql prepares it instead, and comes by watchedStmt
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

// PrepareContext of a probe sends nothing. What it returns may be kept and used with another context, so it
// prepares the text for real once it is asked to run it.
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

// CheckNamedValue serves ExecContext and QueryContext; a statement has its own.
func (c *watchedConn) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := c.inner.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	if !executes(c.inner) {
		return nil // the statement prepared instead will check the arguments
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

// IsValid is asked whenever the connection comes back to the pool.
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

// Close ends a borrowed connection, too. What was lent must not come back inside a transaction.
func (c *watchedConn) Close() error {
	if c.borrowed != nil {
		c.borrowed.end(!c.discard && c.state == txClosed)
		c.end(c.dropped())
		return nil
	}
	if c.place != nil {
		c.home.forget(c.place) // A second call changes nothing: the element is of no list any more.
	}
	err := c.inner.Close()
	c.end(c.dropped())
	return err
}

// before refuses what would be done outside the transaction it was meant for, and a COMMIT sent as text as
// watchedDriverTx.Commit does. An XA transaction is only refused: who coordinates it has to roll it back everywhere.
func (c *watchedConn) before(ctx context.Context, kind sqlKind) error {
	c.touched = true
	// A ROLLBACK does no harm in either case, and is the way out where the server cannot be asked.
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
	// Each commits what is open, or may: the business without its entry (G2).
	case sqlBegin, sqlDDL, sqlDoubt, sqlAutocommit, sqlXAStart:
		return c.doomed()
	}
	return nil
}

// enlist answers a probe. It costs no round trip unless the state is in doubt.
func (c *watchedConn) enlist(ctx context.Context, e *Question) {
	var doubt error
	if c.state == txDoubtful {
		doubt = c.askServer(ctx)
	}
	e.watched, e.Home = c.current(), c.home
	if e.Ours {
		c.ours = e.watched
	}
	// Not known to be open is not open: an entry recorded into it might be durable on its own (G2).
	if doubt != nil {
		e.watched.suspend(fmt.Errorf("%w: %w", processlog.ErrNoTransaction, doubt))
	}
}

// send executes a statement of ours, which nobody follows.
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
