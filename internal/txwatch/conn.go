package txwatch

import (
	"container/list"
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/processlog"
)

// watchedConn implements every optional interface of package driver. If the inner connection lacks an interface,
// watchedConn does what database/sql does for a driver without that interface.
type watchedConn struct {
	inner     driver.Conn
	connector *Connector    // nil for a borrowed connection
	place     *list.Element // element in connector.living
	borrowed  *borrowed     // set for a borrowed connection
	touched   bool          // whether a statement was sent since the connection left the pool
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
		return nil, err // BEGIN would commit the open transaction.
	}
	tx, err := connBegin(ctx, c.inner, opts)
	// The connection is inside a transaction, although nothing was sent since it left the pool. So an earlier user of
	// the connection has left the transaction open. Discard the connection. Otherwise the pool would hand it out again
	// and again.
	if mysqlerr.IsInsideTransaction(err) && !c.touched {
		c.discard = true
		warnLeftOpen(ctx, err)
		return nil, driver.ErrBadConn // Nothing was sent, so database/sql may try another connection.
	}
	// The value nil in recordingTx means that the service has begun this transaction. If the library has begun the
	// transaction, Store.Begin sends a probe after this BEGIN. The method enlist answers the probe, and sets
	// recordingTx.
	c.touched, c.recordingTx = true, nil
	c.afterBegin(err)
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
	if err := c.beforeStatement(ctx, kind); err != nil {
		return nil, err
	}
	result, err := connExec(ctx, c.inner, query, args)
	if err == driver.ErrSkip {
		return nil, err // Nothing was sent, so database/sql prepares the statement.
	}
	if err = c.afterStatement(kind, query, err); err != nil {
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
	if err := c.beforeStatement(ctx, kind); err != nil {
		return nil, err
	}
	rows, err := connQuery(ctx, c.inner, answering(query), args)
	if err == driver.ErrSkip {
		return nil, err
	}
	if err = c.afterStatement(kind, query, err); err != nil {
		return nil, err
	}
	return c.watchRows(rows), nil
}

func (c *watchedConn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// PrepareContext prepares a statement on the server. If ctx belongs to a probe, PrepareContext sends nothing. The
// statement is then prepared on the server when it first runs with another context.
func (c *watchedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt := &watchedStmt{conn: c, query: query, kind: kindOf(query)}
	if unfilled(ctx) != nil {
		return stmt, nil
	}
	if err := c.beforeLoss(stmt.kind); err != nil {
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

func (c *watchedConn) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := c.inner.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	if !executes(c.inner) {
		// This connection runs only prepared statements. So database/sql prepares a statement next, and checks the
		// values for that statement.
		return nil
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

// Close closes the connection, or gives a borrowed one back. The pool closes a borrowed one that is inside a transaction.
func (c *watchedConn) Close() error {
	if c.borrowed != nil {
		c.borrowed.giveBack(!c.discard && c.state == txClosed)
		c.end(c.afterDrop())
		return nil
	}
	if c.place != nil {
		c.connector.forget(c.place)
	}
	err := c.inner.Close()
	c.end(c.afterDrop())
	return err
}

// beforeStatement returns an error for a statement that must not be sent, for example because its transaction is over.
// In place of a refused COMMIT, beforeStatement sends a ROLLBACK. In place of a refused XA COMMIT, it sends nothing,
// because the XA coordinator must roll back on all servers.
func (c *watchedConn) beforeStatement(ctx context.Context, kind sqlKind) error {
	c.touched = true
	// A ROLLBACK does no harm in any state, and the caller needs it if the server does not answer.
	if c.mustKnow() && kind != sqlRollback {
		if err := c.askServer(ctx); err != nil {
			return fmt.Errorf("compensator: ask whether the transaction is still open: %w", err)
		}
	}
	if err := c.beforeLoss(kind); err != nil {
		return err
	}
	switch kind {
	case sqlCommit, sqlCommitChain:
		if refusal := c.refusal(); refusal != nil {
			return c.afterRefusal(refusal, c.send(ctx, "ROLLBACK"))
		}
	case sqlXAPrepare, sqlXACommit:
		return c.refusal()
	// Each of these statements commits an open transaction. If the transaction must not commit, doomed returns an
	// error. Otherwise the commit would keep the business change without its entry. See promise G2.
	case sqlBegin, sqlDDL, sqlDoubt, sqlAutocommit, sqlXAStart:
		return c.doomed()
	}
	return nil
}

// enlist answers a probe, which asks what transaction is open on the connection. It writes the answer into the Question
// e.
func (c *watchedConn) enlist(ctx context.Context, e *Question) {
	var doubt error
	if c.state == txDoubtful {
		doubt = c.askServer(ctx)
	}
	e.watched, e.Connector = c.current(), c.connector
	if e.Ours {
		c.recordingTx = e.watched
	}
	c.discard = c.discard || e.Discard && c.recordingTx != nil
	// The server did not say whether the transaction is still open. If it is closed, an INSERT of an entry would commit
	// at once, without the business change. So let the Tx refuse to record. See promise G2.
	if doubt != nil {
		e.watched.suspend(fmt.Errorf("%w: %w", processlog.ErrNoTransaction, doubt))
	}
}

// send runs a statement that does not change the watched state.
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
