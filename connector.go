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

// Open opens a database by the name of its driver, as sql.Open does, but through a Connector. It does not connect yet.
func Open(driverName, dataSourceName string) (*sql.DB, error) {
	named, err := sql.Open(driverName, dataSourceName) // only sql.Open finds drivers by name
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

// Connector wraps a driver's connector so that the library sees the end of every transaction. Then Commit itself
// enqueues the entries, and you need not call Committed.
//
//	db := sql.OpenDB(compensator.Connector(connector))
//
// A statement costs as much as before. Every optional interface of the driver is passed on. Pooled connections are
// treated as docs/reference/servers.md describes. Four things differ from the driver alone:
//   - db.Driver() and sql.Conn.Raw return the wrapper, not the driver's types.
//   - Commit rolls back and returns ErrNotRecorded if an entry could not be written. It returns ErrTxAborted if the
//     server has rolled the transaction back.
//   - After such a rollback by the server, further statements return ErrTxAborted and are not sent. The server would
//     commit each of them by itself.
//   - When the connection breaks around COMMIT, the error also wraps ErrCommitUnknown.
//
// If you have other wrappers, for example for tracing, put them inside this one. A wrapper around this one works only
// if it passes contexts on. New warns of a wrapper that does not, because the library then does not see commits. See
// docs/reference/servers.md.
//
// These errors concern only transactions in which an entry was recorded. The library knows the statements and errors
// that change a transaction on MySQL, MariaDB, compatible servers, and SQLite.
func Connector(inner driver.Connector) driver.Connector { return txwatch.Wrap(inner) }

func scopedOf(tx Tx) *ScopedTx {
	switch tx := tx.(type) {
	case *ScopedTx:
		return tx
	case interface{ Scoped() *ScopedTx }: // a handle of an ORM on a ScopedTx
		if !isNilPointer(tx) {
			return tx.Scoped()
		}
	}
	return nil
}

// isNilPointer reports whether v is an interface that holds a nil pointer.
func isNilPointer(v any) bool {
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

// enlist returns the object that reports the end of the transaction tx. It returns nil if the library cannot see the
// end of tx. enlist returns an error if tx must not record entries of c.
func (c *Compensator) enlist(ctx context.Context, tx Tx) (transactionEnd, error) {
	if tx == nil || isNilPointer(tx) {
		return nil, &FieldError{Field: "tx", Reason: fmt.Sprintf("is nil (%T)", tx)}
	}
	if s := scopedOf(tx); s != nil {
		return s.end, s.checkJoin(ctx, c)
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

// inquiry finds out whether a transaction handle of unknown type, for example of an ORM, wraps a ScopedTx. The library puts
// the inquiry into the context of the first statement that it sends through the handle. If the statement arrives at a
// ScopedTx, the ScopedTx fills in the inquiry.
type inquiry struct {
	c        *Compensator // the Compensator whose method makes the inquiry, for example Record
	ref      Ref          // the entry to change; nil for Record
	scopedTx *ScopedTx
	refusal  error
}

type inquiryKey struct{}

// inquire puts a new inquiry about tx into a context: see the type inquiry. If tx is a *sql.Tx or a ScopedTx, inquire
// returns ctx and nil. In this case the library knows without an inquiry whether tx is a ScopedTx.
func (c *Compensator) inquire(ctx context.Context, tx Tx, ref Ref) (context.Context, *inquiry) {
	if _, plain := tx.(*sql.Tx); plain || scopedOf(tx) != nil {
		return ctx, nil
	}
	inquiry := &inquiry{c: c, ref: ref}
	return context.WithValue(ctx, inquiryKey{}, inquiry), inquiry
}

// admit returns why a statement must not be sent, or nil.
func (q *inquiry) admit(ctx context.Context, s *ScopedTx) error {
	if q.scopedTx == nil {
		q.scopedTx = s
		q.refusal = cmp.Or(s.checkJoin(ctx, q.c), s.refuseOwn(q.ref))
	}
	return q.refusal
}

func (q *inquiry) refusalOr(err error) error {
	if q != nil && q.refusal != nil {
		return q.refusal
	}
	return err
}

func (q *inquiry) endOr(watch transactionEnd) transactionEnd {
	if watch == nil && q != nil && q.scopedTx != nil {
		return q.scopedTx.end
	}
	return watch
}

func describeNoTransaction(tx Tx, err error) error {
	if !errors.Is(err, ErrNoTransaction) || errors.Is(err, ErrTxAborted) {
		return err
	}
	switch tx.(type) {
	case *sql.DB, *sql.Conn:
		return fmt.Errorf("%w on a %T: give the transaction that BeginTx returns, or use InTx", err, tx)
	}
	return fmt.Errorf("%w on this %T: it has been committed or rolled back, a statement such as DDL has ended it, or it never had one", err, tx)
}

const lateProbeTimeout = 10 * time.Second

// watchOf returns the watch of the transaction tx. A watch is a *txwatch.Tx: it sees the end of tx, and can prevent the
// commit. The connection of tx holds the watch. To reach this connection, watchOf sends a statement, the probe, through
// tx. If the connection is not watched, watchOf returns no watch.
//
// If ctx has ended, the first probe may not reach the connection. The caller still needs the watch, to prevent the
// commit. So watchOf sends a second probe with a context that has not ended.
func (c *Compensator) watchOf(ctx context.Context, tx Tx) (*txwatch.Tx, error) {
	ctx, enlistment := txwatch.Ask(ctx)
	err := c.store.Probe(ctx, tx)
	if enlistment.Tx() == nil && ctx.Err() != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateProbeTimeout)
		defer cancel()
		_ = c.store.Probe(late, tx) // the next lines read what the probe found
	}
	if watch := enlistment.Tx(); watch != nil {
		if watch.Err() != nil || enlistment.Connector == c.connector {
			return watch, nil
		}
		return watch, c.sameLog(ctx, tx, enlistment.Connector)
	}
	return nil, err
}
