package compensator

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/internal/sqlstore"
	"github.com/compensator-go/compensator/internal/txwatch"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// ScopedTx is a transaction that the library begins and nobody else ends, for InTx's closure and transactional handlers
// until they return. Its methods are those that bun, sqlc and squirrel ask of a connection; GORM works in it by way of
// module orms/gormtx. Once the server has rolled it back nothing more is sent: every statement, also of a *sql.Stmt
// prepared before, returns ErrTxAborted; once a statement of your own has ended it (COMMIT, DDL), ErrNoTransaction.
type ScopedTx struct {
	c     *Compensator // that began it
	tx    processlog.Transaction
	end   transactionEnd
	alone *unwatched // end, on a Store whose connections tell nothing; nil: the connection's own view

	handles *processlog.Row // the entry whose handler it is for; nil: InTx
}

var _ Tx = (*ScopedTx)(nil)

// ExecContext runs a statement.
func (s *ScopedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := s.refusal(ctx); err != nil {
		return nil, err
	}
	res, err := s.tx.ExecContext(ctx, query, args...)
	return res, s.see(err)
}

// QueryContext runs a query. Close its rows before the next statement.
func (s *ScopedTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := s.refusal(ctx); err != nil {
		return nil, err
	}
	rows, err := s.tx.QueryContext(ctx, query, args...)
	return rows, s.see(err)
}

// QueryRowContext runs a query for one row.
func (s *ScopedTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	tx, ok := s.tx.(interface {
		QueryRowContext(context.Context, string, ...any) *sql.Row
	})
	if err := cmp.Or(s.refusal(ctx), unlessKnown(ok, "QueryRowContext")); err != nil {
		return noRow(ctx, err)
	}
	row := tx.QueryRowContext(ctx, query, args...)
	_ = s.see(row.Err()) // its Scan returns it
	return row
}

// PrepareContext prepares a statement.
func (s *ScopedTx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	tx, ok := s.tx.(interface {
		PrepareContext(context.Context, string) (*sql.Stmt, error)
	})
	if err := cmp.Or(s.refusal(ctx), unlessKnown(ok, "PrepareContext")); err != nil {
		return nil, err
	}
	stmt, err := tx.PrepareContext(ctx, query)
	return stmt, s.see(err)
}

// StmtContext is stmt, prepared on a Config.DB that is opened on a Connector, in this transaction; another fails when it is
// used. It panics where Config.Store's transactions have no such method.
func (s *ScopedTx) StmtContext(ctx context.Context, stmt *sql.Stmt) *sql.Stmt {
	tx, ok := s.tx.(interface {
		StmtContext(context.Context, *sql.Stmt) *sql.Stmt
	})
	if err := unlessKnown(ok, "StmtContext"); err != nil {
		panic(err) // a *sql.Stmt of our own cannot hold it
	}
	return tx.StmtContext(ctx, stmt)
}

// unlessKnown is an error where a transaction of a Store of the user's is no *sql.Tx, and has no such method.
func unlessKnown(known bool, method string) error {
	if known {
		return nil
	}
	return fmt.Errorf("compensator: Config.Store's transactions have no %s", method)
}

// noRow is a row whose Scan returns err.
func noRow(ctx context.Context, err error) *sql.Row {
	db := sql.OpenDB(refusing{err})
	defer db.Close()
	return db.QueryRowContext(ctx, "")
}

// refusing is a database that cannot be reached, for a reason.
type refusing struct{ err error }

func (r refusing) Connect(context.Context) (driver.Conn, error) { return nil, r.err }
func (r refusing) Driver() driver.Driver                        { return nil }

// refusal is why a statement is not to be sent: the transaction has ended, which a watched connection says by itself, or an
// inquiry in ctx does not admit it.
func (s *ScopedTx) refusal(ctx context.Context) error {
	if s.alone != nil && s.alone.aborted != nil {
		return s.alone.aborted
	}
	if asked, ok := ctx.Value(inquiryKey{}).(*inquiry); ok {
		return asked.admit(ctx, s)
	}
	return nil
}

// refuseOwn refuses the entry whose handler it is for, by either of its names. Of nil it refuses nothing.
func (s *ScopedTx) refuseOwn(ref Ref) error {
	if s == nil || s.handles == nil || ref != Ref(s.handles.ID) && ref != Ref(s.handles.IdempotentID) {
		return nil
	}
	return &FieldError{Field: "ref", Reason: "is the entry that this transaction's handler is called for: what becomes of that is what the handler returns"}
}

// see remembers an error by which the server has ended the transaction, whatever the caller does about it.
func (s *ScopedTx) see(err error) error {
	if s.alone != nil {
		s.alone.see(err)
	}
	return err
}

// joins is nil where a statement of c joins the transaction, which another Compensator may have begun. A doubt is
// settled first.
func (s *ScopedTx) joins(ctx context.Context, c *Compensator) error {
	if s.c.fingerprint != c.fingerprint {
		if _, ours := s.c.store.(*sqlstore.Store); !ours {
			return &FieldError{Field: "tx", Reason: fmt.Sprintf("is one of another store, whose log has the fingerprint %s, and this one %s", s.c.fingerprint, c.fingerprint)}
		}
		if err := c.sameLog(ctx, s, s.c); err != nil {
			return err
		}
	}
	if s.alone == nil {
		ctx, _ := txwatch.Ask(ctx)
		_ = c.store.Probe(ctx, s) // what it finds is asked for next
	}
	return s.end.Err()
}

// commit ends the transaction, and whoever waits for its end is told how.
func (s *ScopedTx) commit() error {
	if refusal := s.end.Refusal(); refusal != nil {
		s.rollback()
		return refusal
	}
	err := s.tx.Commit()
	if s.alone != nil {
		return s.alone.committed(err)
	}
	if watch := s.end.(*txwatch.Tx); err == nil && !watch.WasCommitted() { // a doubtful statement had ended it before
		err = ErrNoTransaction
	}
	return err
}

func (s *ScopedTx) rollback() {
	_ = s.tx.Rollback() // a connection that cannot even roll back is closed, which does
	if s.alone != nil {
		s.alone.tell(txwatch.RolledBack)
	}
}

// begin starts a transaction of ours in the user's pool.
func (c *Compensator) begin(ctx context.Context) (*ScopedTx, error) {
	tx, err := c.store.Begin(c.engine.Reporting(ctx))
	if err != nil {
		return nil, fmt.Errorf("compensator: begin: %w", err)
	}
	if seen, ok := tx.(sqlstore.Transaction); ok {
		tx = seen.Transaction
		if seen.Watch != nil {
			return &ScopedTx{c: c, tx: tx, end: seen.Watch}, nil
		}
	}
	alone := new(unwatched)
	return &ScopedTx{c: c, tx: tx, end: alone, alone: alone}, nil
}

// holding marks the context of work in a transaction of ours, where a file has one writer.
func (c *Compensator) holding(ctx context.Context) context.Context {
	if s, ok := c.store.(*sqlstore.Store); ok {
		return s.Holding(ctx)
	}
	return ctx
}

// handlerTx is what the engine sees of a handler's transaction.
type handlerTx struct{ *ScopedTx }

func (tx handlerTx) Over() error   { return tx.end.Over() }
func (tx handlerTx) Commit() error { return tx.commit() }
func (tx handlerTx) Rollback()     { tx.rollback() }

func (c *Compensator) beginForHandler(ctx context.Context) (engine.Transaction, error) {
	tx, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	return handlerTx{tx}, nil
}

// InTx runs work in a transaction at READ COMMITTED and commits when work returns nil; entries recorded through tx
// announce themselves. A panic rolls back. A failed commit is ErrCommitUnknown, ErrTxAborted or ErrNotRecorded.
func (c *Compensator) InTx(ctx context.Context, work func(ctx context.Context, tx *ScopedTx) error) error {
	tx, err := c.begin(ctx)
	if err != nil {
		return err
	}
	finished := false
	defer func() {
		if !finished {
			tx.rollback()
		}
	}()
	if err := work(c.holding(ctx), tx); err != nil {
		return err
	}
	finished = true
	return tx.commit()
}

// Retryable reports whether the transaction that ended with err, from any of its statements or its commit, may be run
// again from its beginning and may well get through: it lost against others, by a deadlock, a lock that was not to be had
// in time, a row that had changed, a SQLite file that was busy; or by ErrTxAborted, ErrBusy. Roll back first, and wait a
// little. Not after ErrCommitUnknown, nor when a connection broke: it may have committed. See RetryTx.
func Retryable(err error) bool { return txwatch.Retryable(err) }

// How often RetryTx runs a transaction, and how long it rests after each run at most, for each there was.
const (
	retryTries = 5
	retryPause = 20 * time.Millisecond
)

// RetryTx calls do up to five times, some milliseconds apart. do runs one transaction of any kind from its beginning to its
// end: InTx, or an ORM's. RetryTx calls do again where Retryable says so, and where the answer to COMMIT was lost and Resolve
// finds that the transaction did not commit. It knows that an answer was lost for InTx, and on a Connector.
//
// nil: the transaction has committed. ErrCommitUnknown, with the error of Resolve: nobody could tell. Any other error: it has
// not committed.
//
// proof is the idempotent id of an entry that do records in its transaction, or asks Once for, in each run that writes
// anything. Resolve tells by this entry. What do writes without it may happen twice. When the receipt says Duplicate, or Once
// returns false, the work has been done before. do then writes nothing, or returns an error that rolls back, as
// FailOnDuplicate makes Record do. do runs in the caller's goroutine. What it sets outside the transaction is of its last run.
func (c *Compensator) RetryTx(ctx context.Context, proof IdempotentID, do func(ctx context.Context) error) error {
	if proof == "" {
		return &FieldError{Field: "proof", Reason: "is empty: want the idempotent id of an entry that the transaction records"}
	}
	defer allProofs.under(proofOf{c.fingerprint, proof})()
	for try := 1; ; try++ {
		err := c.certain(ctx, proof, usererr.Safe(do(ctx)))
		if !Retryable(err) || try == retryTries {
			return err
		}
		if !rest(ctx, jitter.N(time.Duration(try)*retryPause)) {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// proofs remembers the proof of each RetryTx call that is under way, and whether Once answers for it. An entry that Once has
// written has succeeded, so an open or dead entry of the same id does not prove the transaction.
type proofs struct {
	mu     sync.Mutex
	calls  map[proofOf]int  // calls under way by proof; guarded by mu
	byOnce map[proofOf]bool // proofs that Once was asked for; guarded by mu
}

// proofOf is a proof in the log of that fingerprint.
type proofOf struct {
	fingerprint string
	id          IdempotentID
}

// allProofs belongs to the process. The transaction that one Compensator runs may ask the Once of another one of the same log.
var allProofs proofs

// under registers a call with this proof, until the caller calls over.
func (p *proofs) under(proof proofOf) (over func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls == nil {
		p.calls, p.byOnce = make(map[proofOf]int), make(map[proofOf]bool)
	}
	p.calls[proof]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.calls[proof]--; p.calls[proof] == 0 {
			delete(p.calls, proof)
			delete(p.byOnce, proof)
		}
	}
}

// asksOnce notes that a transaction asks Once for a proof.
func (p *proofs) asksOnce(proof proofOf) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls[proof] > 0 {
		p.byOnce[proof] = true
	}
}

// proves reports whether the entry e shows that the transaction of a call with this proof has committed.
func (p *proofs) proves(proof proofOf, e *Entry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return e.State == Succeeded || !p.byOnce[proof]
}

// certain replaces ErrCommitUnknown by what Resolve finds: nil when the transaction has committed, ErrTxAborted when it has not.
func (c *Compensator) certain(ctx context.Context, proof IdempotentID, err error) error {
	if !errors.Is(err, ErrCommitUnknown) {
		return err
	}
	switch e, asked := c.Resolve(ctx, proof); {
	case asked == nil && allProofs.proves(proofOf{c.fingerprint, proof}, e):
		return nil
	case asked == nil, errors.Is(asked, ErrNotFound):
		return fmt.Errorf("%w: %v", ErrTxAborted, err)
	default:
		return errors.Join(err, asked)
	}
}

// rest waits, and reports whether ctx still lasts.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// transactionEnd sees the end of a transaction.
type transactionEnd interface {
	Err() error                  // nil while statements join the transaction
	Over() error                 // err once the transaction has ended; a doubt is no end
	Refusal() error              // why it must not be committed
	FullyWatched() bool          // err knows all that the connection has seen
	OnEnd(func(txwatch.Outcome)) // runs once, when the transaction ends
	Taint(err error)             // makes its commit fail
}

// unwatched is the end of a transaction of ours on a Store whose connections tell nothing: an error while rows were
// read may have gone unseen.
type unwatched struct {
	hooks   []func(txwatch.Outcome)
	aborted error // the server has ended the transaction
	tainted error // an entry could not be written
}

func (u *unwatched) Err() error         { return u.aborted }
func (u *unwatched) Over() error        { return u.aborted }
func (u *unwatched) FullyWatched() bool { return false }
func (u *unwatched) Taint(err error)    { u.tainted = errors.Join(u.tainted, err) }

func (u *unwatched) OnEnd(hook func(txwatch.Outcome)) { u.hooks = append(u.hooks, hook) }

func (u *unwatched) see(err error) {
	if aborts, _ := txwatch.Aborts(err); aborts {
		u.aborted = fmt.Errorf("%w: %w", ErrTxAborted, err)
	}
}

func (u *unwatched) Refusal() error {
	if u.tainted != nil {
		return fmt.Errorf("%w: %w", ErrNotRecorded, u.tainted)
	}
	return u.aborted
}

// committed follows a COMMIT and returns the error to give to the caller.
func (u *unwatched) committed(err error) error {
	outcome := txwatch.Classify(err)
	u.tell(outcome)
	if outcome == txwatch.Unknown && !errors.Is(err, ErrCommitUnknown) {
		return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
	}
	return err
}

func (u *unwatched) tell(outcome txwatch.Outcome) {
	hooks := u.hooks
	u.hooks = nil
	for _, hook := range hooks {
		hook(outcome)
	}
}
