package compensator

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/compensator-go/compensator/internal/txwatch"
)

// Open is sql.Open on a Connector, for whoever knows a driver by its name. Like it, it connects to nothing yet.
func Open(driverName, dataSourceName string) (*sql.DB, error) {
	named, err := sql.Open(driverName, dataSourceName) // only it finds drivers by name
	if err != nil {
		return nil, err
	}
	defer named.Close()
	connector, err := txwatch.ConnectorOf(named.Driver(), dataSourceName)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(Connector(connector)), nil
}

// Connector wraps a driver's connector so that the end of every transaction on it is seen: Commit itself announces what
// was recorded, and nobody need call Committed. Open does so with a driver's name.
//
//	db := sql.OpenDB(compensator.Connector(connector))
//
// Each statement costs what it cost, and every optional interface of the driver is passed on. What differs, beside the
// care of pooled connections that docs/operations.md describes:
//   - db.Driver() and sql.Conn.Raw give the wrapper, not the driver's types.
//   - Commit refuses, and rolls back, a transaction in which an entry could not be written (ErrNotRecorded)
//     or which the server has rolled back by itself (ErrTxAborted).
//   - Once the server has, its statements return ErrTxAborted: sent, they would commit by themselves.
//   - When the connection breaks around COMMIT, the error also wraps ErrCommitUnknown.
//
// Other wrappers, for traces say, go inside of it. One around it may stand if it hands contexts on; New warns of one that
// does not, and behind which no commit is seen. See docs/operations.md.
//
// The errors concern only transactions an entry was recorded in. How statements and errors change a transaction is
// known of MySQL, MariaDB, what speaks like them, and SQLite.
func Connector(inner driver.Connector) driver.Connector { return txwatch.Wrap(inner) }

// scopedOf is the ScopedTx that a handle is known to be on, or nil.
func scopedOf(tx Tx) *ScopedTx {
	switch tx := tx.(type) {
	case *ScopedTx:
		return tx
	case interface{ Scoped() *ScopedTx }: // an ORM's handle on it
		if !isNilPointer(tx) {
			return tx.Scoped()
		}
	}
	return nil
}

// isNilPointer reports whether an interface holds a pointer to nothing, which is not nil.
func isNilPointer(v any) bool {
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

// enlist finds who sees the end of tx: the library itself, a Connector's connection, or nobody (nil). An error says
// that nothing of c's can join it.
func (c *Compensator) enlist(ctx context.Context, tx Tx) (transactionEnd, error) {
	if tx == nil || isNilPointer(tx) {
		return nil, &FieldError{Field: "tx", Reason: fmt.Sprintf("is nil (%T)", tx)}
	}
	if s := scopedOf(tx); s != nil {
		return s.end, s.joins(ctx, c)
	}
	if c.connector == nil {
		return nil, nil
	}
	watch, err := c.watchOf(ctx, tx)
	if watch == nil {
		return nil, err
	}
	return watch, cmp.Or(err, watch.Err())
}

// inquiry asks, of a handle that is not known, a tracer's say, whether it is one on a ScopedTx: the first statement that it hands
// on to one finds that, before it is sent. It costs no statement of its own.
type inquiry struct {
	c       *Compensator // whose call it is
	ref     Ref          // what is to be changed; nil: Record
	found   *ScopedTx
	refused error
}

type inquiryKey struct{}

// inquire puts an inquiry into a context, for the statements of one call; nil where the handle is known.
func (c *Compensator) inquire(ctx context.Context, tx Tx, ref Ref) (context.Context, *inquiry) {
	if _, plain := tx.(*sql.Tx); plain || scopedOf(tx) != nil {
		return ctx, nil
	}
	asked := &inquiry{c: c, ref: ref}
	return context.WithValue(ctx, inquiryKey{}, asked), asked
}

// admit is why a statement that has come to s is not to be sent.
func (q *inquiry) admit(ctx context.Context, s *ScopedTx) error {
	if q.found == nil {
		q.found = s
		q.refused = cmp.Or(s.joins(ctx, q.c), s.refuseOwn(q.ref))
	}
	return q.refused
}

// or is why the call is refused, or else err.
func (q *inquiry) or(err error) error {
	if q != nil && q.refused != nil {
		return q.refused
	}
	return err
}

// end is watch, or where nobody sees the end of the transaction that of the ScopedTx that was found.
func (q *inquiry) end(watch transactionEnd) transactionEnd {
	if watch == nil && q != nil && q.found != nil {
		return q.found.end
	}
	return watch
}

// naming says which handle has no open transaction, and what would have one.
func naming(tx Tx, err error) error {
	if !errors.Is(err, ErrNoTransaction) || errors.Is(err, ErrTxAborted) {
		return err
	}
	switch tx.(type) {
	case *sql.DB, *sql.Conn:
		return fmt.Errorf("%w on a %T: give the transaction that BeginTx returns, or use InTx", err, tx)
	}
	return fmt.Errorf("%w on this %T: it has been committed or rolled back, a statement such as DDL has ended it, or it never had one", err, tx)
}

// lateProbe bounds the question that is asked although the caller's context has ended.
const lateProbe = 10 * time.Second

// watchOf asks the connection beneath tx for its view. A handle on some other connection answers as the
// server does. When ctx has ended package sql lets nothing through, and the connection is asked all the same: the
// transaction is not to be committed without what could not be written.
func (c *Compensator) watchOf(ctx context.Context, tx Tx) (*txwatch.Tx, error) {
	ctx, enlistment := txwatch.Ask(ctx)
	err := c.store.Probe(ctx, tx)
	if enlistment.Tx() == nil && ctx.Err() != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateProbe)
		defer cancel()
		_ = c.store.Probe(late, tx) // what it finds is asked for next
	}
	if watch := enlistment.Tx(); watch != nil {
		if watch.Err() != nil || enlistment.Home == c.connector {
			return watch, nil
		}
		return watch, c.sameLog(ctx, tx, enlistment.Home)
	}
	return nil, err
}
