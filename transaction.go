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

	"github.com/compensator-go/compensator/internal/features"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/internal/sleep"
	"github.com/compensator-go/compensator/internal/sqlstore"
	"github.com/compensator-go/compensator/internal/txwatch"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// ScopedTx is a transaction that only the library begins and ends. The function of InTx and transactional handlers may
// use it until they return. Use a ScopedTx in one goroutine at a time.
//
// If the server rolls the transaction back, the library sends no more statements. Every later statement returns
// ErrTxAborted. Statements of a *sql.Stmt that was prepared before return this error, too. If one of your own
// statements ends the transaction (COMMIT, DDL), every later statement returns ErrNoTransaction.
type ScopedTx struct {
	c   *Compensator // the Compensator that began this transaction
	tx  processlog.Transaction
	end transactionEnd // reports the end of this transaction; it is a *txwatch.Tx or a *unwatchedEnd
	// The field unwatched is nil if the connections of the Store watch their transactions. If the connections do not
	// watch them, the fields unwatched and end hold the same *unwatchedEnd.
	unwatched *unwatchedEnd

	handledRow *processlog.Row // the entry whose handler uses this transaction; nil in InTx
	failure    error           // why the handler of this transaction failed; nil if it has not been called, or has succeeded
}

var _ Tx = (*ScopedTx)(nil)

// ExecContext runs a statement.
func (s *ScopedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := s.refusal(ctx); err != nil {
		return nil, err
	}
	res, err := s.tx.ExecContext(ctx, query, args...)
	return res, s.noteError(err)
}

// QueryContext runs a query. Close its rows before you run the next statement.
func (s *ScopedTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := s.refusal(ctx); err != nil {
		return nil, err
	}
	rows, err := s.tx.QueryContext(ctx, query, args...)
	return rows, s.noteError(err)
}

// QueryRowContext runs a query that returns one row.
func (s *ScopedTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	tx, ok := s.tx.(interface {
		QueryRowContext(context.Context, string, ...any) *sql.Row
	})
	if err := cmp.Or(s.refusal(ctx), missingMethod(ok, "QueryRowContext")); err != nil {
		return noRow(ctx, err)
	}
	row := tx.QueryRowContext(ctx, query, args...)
	_ = s.noteError(row.Err()) // row.Scan returns this error
	return row
}

// PrepareContext prepares a statement.
func (s *ScopedTx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	tx, ok := s.tx.(interface {
		PrepareContext(context.Context, string) (*sql.Stmt, error)
	})
	if err := cmp.Or(s.refusal(ctx), missingMethod(ok, "PrepareContext")); err != nil {
		return nil, err
	}
	stmt, err := tx.PrepareContext(ctx, query)
	return stmt, s.noteError(err)
}

// StmtContext returns stmt for use in this transaction. stmt must be prepared on Config.DB, and Config.DB must have been
// opened on a Connector. A statement of another database fails when it is used. StmtContext panics if the transactions of
// Config.Store have no method StmtContext.
func (s *ScopedTx) StmtContext(ctx context.Context, stmt *sql.Stmt) *sql.Stmt {
	tx, ok := s.tx.(interface {
		StmtContext(context.Context, *sql.Stmt) *sql.Stmt
	})
	if err := missingMethod(ok, "StmtContext"); err != nil {
		panic(err) // StmtContext has no error result, and cannot put err into a *sql.Stmt: only package sql can do so.
	}
	return tx.StmtContext(ctx, stmt)
}

// missingMethod returns an error if a transaction of a custom Store lacks a method of *sql.Tx.
func missingMethod(hasMethod bool, method string) error {
	if hasMethod {
		return nil
	}
	return fmt.Errorf("compensator: Config.Store's transactions have no %s", method)
}

func noRow(ctx context.Context, err error) *sql.Row {
	db := sql.OpenDB(failingConnector{err})
	defer db.Close()
	return db.QueryRowContext(ctx, "")
}

type failingConnector struct{ err error }

func (r failingConnector) Connect(context.Context) (driver.Conn, error) { return nil, r.err }
func (r failingConnector) Driver() driver.Driver                        { return nil }

// refusal returns why a statement must not be sent through s, or nil. It checks for an ended transaction only if the
// connection is not watched, because a watched connection refuses such statements itself.
func (s *ScopedTx) refusal(ctx context.Context) error {
	if s.unwatched != nil && s.unwatched.aborted != nil {
		return s.unwatched.aborted
	}
	if inquiry, ok := ctx.Value(inquiryKey{}).(*inquiry); ok {
		return inquiry.admit(ctx, s)
	}
	return nil
}

func (s *ScopedTx) refuseOwn(ref Ref) error {
	if s == nil || s.handledRow == nil {
		return nil
	}
	return refuseChange(s.handledRow, ref)
}

func refuseChange(own *processlog.Row, ref Ref) error {
	if ref != Ref(own.ID) && ref != Ref(own.IdempotencyKey) {
		return nil
	}
	return &FieldError{Field: "ref", Reason: "is the entry that this transaction's handler is called for: what becomes of that is what the handler returns"}
}

type handlerKey struct{}

func withHandlerEntry(ctx context.Context, e *Entry) context.Context {
	return context.WithValue(ctx, handlerKey{}, e)
}

// refuseOwn refuses a change by which a running transactional handler would complete its own entry. If a transactional
// handler makes the change, ctx carries the entry of this handler. The change would end the entry, and the handler's
// transaction could then not store the entry's success. So the library would roll this transaction back, with the
// writes of the handler.
func (c *Compensator) refuseOwn(ctx context.Context, ch processlog.Change) error {
	if ch.Action != processlog.ActionComplete && ch.Action != processlog.ActionSettleManually {
		return nil
	}
	if e, ok := ctx.Value(handlerKey{}).(*Entry); ok && e.owner.fingerprint == c.fingerprint {
		return refuseChange(e.row, ch.Ref)
	}
	return nil
}

// noteError remembers that the server ended the transaction, even if the caller ignores the error.
func (s *ScopedTx) noteError(err error) error {
	if s.unwatched != nil {
		s.unwatched.noteError(err)
	}
	return err
}

// checkJoin refuses a Compensator with another log: see sameLog. It probes a watched connection, to find out whether
// the transaction is still open.
func (s *ScopedTx) checkJoin(ctx context.Context, c *Compensator) error {
	if s.c.fingerprint != c.fingerprint {
		if _, ours := s.c.store.(*sqlstore.Store); !ours {
			return &FieldError{Field: "tx", Reason: fmt.Sprintf("is one of another store, whose log has the fingerprint %s, and this one %s", s.c.fingerprint, c.fingerprint)}
		}
		if err := c.sameLog(ctx, s, s.c); err != nil {
			return err
		}
	}
	if s.unwatched == nil {
		ctx, _ := txwatch.Ask(ctx)
		_ = c.store.Probe(ctx, s) // s.end.Err below reads what the probe found
	}
	return s.end.Err()
}

func (s *ScopedTx) commit() error {
	if refusal := s.end.Refusal(); refusal != nil {
		s.rollback()
		return refusal
	}
	err := s.tx.Commit()
	if s.unwatched != nil {
		return s.unwatched.committed(err)
	}
	if watch := s.end.(*txwatch.Tx); err == nil && !watch.WasCommitted() { // Commit succeeded, but an earlier statement with a lost answer had already ended the transaction.
		err = ErrNoTransaction
	}
	return err
}

func (s *ScopedTx) rollback() {
	_ = s.tx.Rollback() // if the rollback fails, package sql closes the connection, and the server rolls back
	if s.unwatched != nil {
		s.unwatched.reportEnd(txwatch.RolledBack)
	}
}

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
	unwatched := new(unwatchedEnd)
	return &ScopedTx{c: c, tx: tx, end: unwatched, unwatched: unwatched}, nil
}

// markInTransaction marks a context for work inside an open transaction, if the store uses SQLite. A SQLite file has
// only one writer at a time, so each transaction waits for its turn. The open transaction has the turn until it ends. A
// second transaction under the marked context must not wait for a turn: the open transaction cannot end before the work
// inside it is done.
func (c *Compensator) markInTransaction(ctx context.Context) context.Context {
	if s, ok := c.store.(*sqlstore.Store); ok {
		return s.Holding(ctx)
	}
	return ctx
}

var errPanicked = errors.New("it panicked")

// callHandler calls the handler, and keeps the handler's error in s.failure. A middleware may hide this error: it may
// return nil although the handler has failed. Without s.failure, the library would then commit the writes of the failed
// handler. See handlerTx.Over.
func (s *ScopedTx) callHandler(handler func() error) error {
	earlier := s.failure
	s.failure = cmp.Or(earlier, errPanicked)
	err := handler()
	s.failure = cmp.Or(earlier, usererr.Of(err))
	return err
}

type handlerTx struct{ *ScopedTx }

// Over returns an error if the transaction is known to have ended, or if the handler has failed.
func (tx handlerTx) Over() error {
	if tx.failure != nil {
		return fmt.Errorf("a middleware has hidden the failure of the handler, whose transaction was rolled back: %w", tx.failure)
	}
	return tx.end.Over()
}

func (tx handlerTx) Commit() error { return tx.commit() }
func (tx handlerTx) Rollback()     { tx.rollback() }

func (c *Compensator) beginForHandler(ctx context.Context) (features.Transaction, error) {
	tx, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	return handlerTx{tx}, nil
}

// InTx calls fn in a transaction at READ COMMITTED and commits when fn returns nil. The commit enqueues the entries that were
// recorded through tx. If fn returns an error, InTx rolls back and returns this error unchanged. If fn panics, InTx rolls
// back. If the commit fails, InTx returns ErrCommitUnknown, ErrTxAborted or ErrNotRecorded.
func (c *Compensator) InTx(ctx context.Context, fn func(ctx context.Context, tx *ScopedTx) error) error {
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
	if err := fn(c.markInTransaction(ctx), tx); err != nil {
		return err
	}
	finished = true
	return tx.commit()
}

// Retryable reports whether a transaction that failed with err has a good chance if it is run again from its beginning.
// err may come from any of its statements or from its commit. Retryable returns true if another transaction was in the
// way: a deadlock, a lock wait timeout, a row that had changed, or a busy SQLite file. It also returns true for
// ErrTxAborted and ErrBusy. Before you run the transaction again, roll back and wait some milliseconds.
//
// It returns false after ErrCommitUnknown and after a broken connection, because the transaction may have committed.
// See WithRetry.
func Retryable(err error) bool { return txwatch.Retryable(err) }

const (
	retryTries = 5
	retryPause = 20 * time.Millisecond
)

// WithRetry runs a transaction, and runs it again after an error for which Retryable returns true, such as a deadlock.
// It calls fn up to five times, some milliseconds apart. Each call of fn runs one transaction of any kind from its
// beginning to its end, for example with InTx or an ORM. fn runs in the caller's goroutine.
//
// The parameter proof is the idempotency key of an entry that the transaction records. If the answer to a COMMIT is
// lost, WithRetry looks for this entry with Resolve. If the entry does not exist, the transaction did not commit, and
// WithRetry calls fn again. WithRetry notices a lost answer if fn uses InTx or a pool with a Connector.
//
// So whenever fn writes anything, it must record an entry with this key in the same transaction, or pass the key to
// Once. If fn does not do so, its writes may happen twice.
//
// If an earlier run of fn has committed, the entry exists already. Then Receipt.Duplicate of the receipt that Record returns
// is true, and Once returns false. In this case fn must write nothing, or return an error that rolls back.
// Options.FailOnDuplicate makes Record return such an error.
//
// WithRetry returns nil if the transaction has committed. If WithRetry could not find out whether the transaction
// committed, it returns ErrCommitUnknown, joined with the error of Resolve. After any other error the transaction has
// not committed.
//
// Variables that fn sets outside the transaction hold the values of its last run.
//
// If proof is empty, WithRetry returns a *FieldError. If ctx ends between two tries, WithRetry returns the last error
// of fn, joined with context.Cause(ctx).
func (c *Compensator) WithRetry(ctx context.Context, proof IdempotencyKey, fn func(ctx context.Context) error) error {
	if proof == "" {
		return &FieldError{Field: "proof", Reason: "is empty: want the idempotency key of an entry that the transaction records"}
	}
	defer allProofs.register(proofKey{c.fingerprint, proof})()
	for try := 1; ; try++ {
		err := c.resolveUnknown(ctx, proof, usererr.Safe(fn(ctx)))
		if !Retryable(err) || try == retryTries {
			return err
		}
		if !sleep.For(ctx, jitter.N(time.Duration(try)*retryPause)) {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// proofs holds the proof of each running call of WithRetry. The proof is the idempotency key of the entry that shows
// whether the transaction committed.
type proofs struct {
	mu     sync.Mutex
	calls  map[proofKey]int  // for each proof, an idempotency key, the number of calls of WithRetry that run now; guarded by mu
	byOnce map[proofKey]bool // true for each proof that was passed to the method Type.Once; guarded by mu
}

type proofKey struct {
	fingerprint string
	id          IdempotencyKey
}

// allProofs holds the proofs of the WithRetry calls of all Compensators in this process. A proof is an idempotency key.
// All Compensators share this variable, because two of them may use the same log. A transaction under WithRetry of one
// Compensator may then call the method Type.Once for a type of the other.
var allProofs proofs

func (p *proofs) register(proof proofKey) (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls == nil {
		p.calls, p.byOnce = make(map[proofKey]int), make(map[proofKey]bool)
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

func (p *proofs) noteOnce(proof proofKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls[proof] > 0 {
		p.byOnce[proof] = true
	}
}

// proves reports whether the entry e shows that the transaction of a WithRetry call committed. The idempotency key of e
// is the proof of this call. If the transaction recorded e, the existence of e shows the commit. But if the transaction
// called Once, e may be an older entry that Once completes. In this case only the state Succeeded shows the commit.
func (p *proofs) proves(proof proofKey, e *Entry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return e.State == Succeeded || !p.byOnce[proof]
}

// resolveUnknown finds out what happened if err is ErrCommitUnknown. If the transaction committed, resolveUnknown
// returns nil. If it did not commit, resolveUnknown returns ErrTxAborted. If Resolve fails, resolveUnknown returns err
// together with the error of Resolve. Any other err is returned unchanged.
func (c *Compensator) resolveUnknown(ctx context.Context, proof IdempotencyKey, err error) error {
	if !errors.Is(err, ErrCommitUnknown) {
		return err
	}
	switch e, resolveErr := c.Resolve(ctx, proof); {
	case resolveErr == nil && allProofs.proves(proofKey{c.fingerprint, proof}, e):
		return nil
	case resolveErr == nil, errors.Is(resolveErr, ErrNotFound):
		return fmt.Errorf("%w: %v", ErrTxAborted, err)
	default:
		return errors.Join(err, resolveErr)
	}
}

type transactionEnd interface {
	Err() error                  // returns nil as long as a statement may join the transaction
	Over() error                 // returns an error if the transaction is known to have ended, nil if it may still be open
	Refusal() error              // returns why the transaction must not be committed, or nil
	FullyWatched() bool          // whether Err knows everything that the connection has seen
	OnEnd(func(txwatch.Outcome)) // calls the function once, when the transaction ends
	Taint(err error)             // makes the commit fail with err
}

// unwatchedEnd finds out how a transaction of the library ends if the connections of the Store do not report this. It
// looks at the errors that the methods of ScopedTx return. It does not see an error that occurs later, while the caller
// reads rows.
type unwatchedEnd struct {
	hooks   []func(txwatch.Outcome)
	aborted error // the error with which the server has ended the transaction
	tainted error // why an entry could not be written
}

func (u *unwatchedEnd) Err() error         { return u.aborted }
func (u *unwatchedEnd) Over() error        { return u.aborted }
func (u *unwatchedEnd) FullyWatched() bool { return false }
func (u *unwatchedEnd) Taint(err error)    { u.tainted = errors.Join(u.tainted, err) }

func (u *unwatchedEnd) OnEnd(hook func(txwatch.Outcome)) { u.hooks = append(u.hooks, hook) }

func (u *unwatchedEnd) noteError(err error) {
	if aborts, _ := txwatch.Aborts(err); aborts {
		u.aborted = fmt.Errorf("%w: %w", ErrTxAborted, err)
	}
}

func (u *unwatchedEnd) Refusal() error {
	if u.tainted != nil {
		return fmt.Errorf("%w: %w", ErrNotRecorded, u.tainted)
	}
	return u.aborted
}

func (u *unwatchedEnd) committed(err error) error {
	outcome := txwatch.Classify(err)
	u.reportEnd(outcome)
	if outcome == txwatch.Unknown && !errors.Is(err, ErrCommitUnknown) {
		return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
	}
	return err
}

func (u *unwatchedEnd) reportEnd(outcome txwatch.Outcome) {
	hooks := u.hooks
	u.hooks = nil
	for _, hook := range hooks {
		hook(outcome)
	}
}
