package txwatch

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// Tx is the state of one transaction on a watched connection. Only its first end counts. A Tx is safe for concurrent use.
type Tx struct {
	mu         sync.Mutex // guards the fields below
	state      error      // nil as long as statements run inside the transaction
	hasEnded   bool
	outcome    Outcome // result of the transaction; valid once hasEnded is true
	hooks      []func(Outcome)
	tainted    error
	savepoints []string // names of the savepoints that were set after the call of Taint, as written in the statements
}

func noTransaction() *Tx {
	return &Tx{state: processlog.ErrNoTransaction, hasEnded: true, outcome: RolledBack}
}

// Err returns nil while the transaction is open, and then an error that wraps ErrNoTransaction: ErrTxAborted if the server
// rolled it back.
func (w *Tx) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// OnEnd calls hook exactly once, with the outcome of the transaction. If the transaction has already ended, OnEnd calls
// hook before OnEnd returns. If the transaction is open, the goroutine that ends the transaction calls hook. This
// goroutine holds the connection, so hook must not block. A panic in hook is logged and stopped.
func (w *Tx) OnEnd(hook func(Outcome)) {
	w.mu.Lock()
	ended, outcome := w.hasEnded, w.outcome
	if !ended {
		w.hooks = append(w.hooks, hook)
	}
	w.mu.Unlock()
	if ended {
		runHook(hook, outcome)
	}
}

// Taint records that an entry could not be written. Commit then rolls back and returns err, unless the caller has rolled
// back to a savepoint from before the call.
func (w *Tx) Taint(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tainted == nil {
		w.tainted, w.savepoints = err, nil
	}
}

// Refusal returns the reason why Commit must not happen, or nil.
func (w *Tx) Refusal() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.tainted != nil && w.hasEnded:
		return fmt.Errorf("%w: %w (%w)", processlog.ErrNotRecorded, w.tainted, w.state)
	case w.tainted != nil:
		return fmt.Errorf("%w: %w", processlog.ErrNotRecorded, w.tainted)
	case w.hasEnded:
		return w.state
	}
	return nil
}

// FullyWatched returns true, because a watched connection sees every error.
func (w *Tx) FullyWatched() bool { return true }

// Over returns the error with which the transaction ended. It returns nil while the transaction is open or doubtful.
func (w *Tx) Over() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.hasEnded {
		return nil
	}
	return w.state
}

// WasCommitted reports whether the transaction was certainly committed.
func (w *Tx) WasCommitted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hasEnded && w.outcome == Committed
}

// suspend makes Err return err. The call suspend(nil) makes Err return nil again. After the end of the transaction,
// suspend does nothing.
func (w *Tx) suspend(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.hasEnded {
		w.state = err
	}
}

func (w *Tx) abort()              { w.finish(RolledBack, processlog.ErrTxAborted) }
func (w *Tx) end(outcome Outcome) { w.finish(outcome, processlog.ErrNoTransaction) }

func (w *Tx) finish(outcome Outcome, state error) {
	w.mu.Lock()
	if w.hasEnded {
		w.mu.Unlock()
		return
	}
	w.hasEnded, w.outcome, w.state = true, outcome, state
	hooks := w.hooks
	w.hooks = nil
	w.mu.Unlock()
	for _, hook := range hooks {
		runHook(hook, outcome)
	}
}

func runHook(hook func(Outcome), outcome Outcome) {
	defer func() {
		if p := recover(); p != nil {
			warnConnector(fmt.Errorf("compensator: hook on a transaction's end panicked: %s", usererr.PanicText(p)))
		}
	}()
	hook(outcome)
}

// savepoint stores the name of a savepoint that is set after the call of Taint. afterRollbackTo needs only these names.
func (w *Tx) savepoint(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tainted != nil {
		w.savepoints = append(w.savepoints, name)
	}
}

// afterRollbackTo removes the taint if the savepoint was set before the call of Taint. A server compares the names of
// savepoints by a collation, for which é may equal e. So a name with a letter outside ASCII may equal any other name.
func (w *Tx) afterRollbackTo(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, later := range w.savepoints {
		if strings.EqualFold(later, name) || !isASCII(later) || !isASCII(name) {
			return
		}
	}
	w.tainted, w.savepoints = nil, nil
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

type watchedDriverTx struct {
	conn  *watchedConn
	inner driver.Tx
}

var _ driver.Tx = (*watchedDriverTx)(nil)

func (t *watchedDriverTx) Commit() error {
	if t.conn.mustKnow() {
		// Ignore the error of askServer. If the server does not answer, the COMMIT below fails too.
		_ = t.conn.askServer(context.Background())
	}
	t.conn.recordingTx = nil
	if refusal := t.conn.refusal(); refusal != nil {
		return t.conn.afterRefusal(refusal, t.inner.Rollback())
	}
	failpoint.Reach(failpoint.CommitNext)
	err := t.inner.Commit()
	failpoint.Reach(failpoint.CommitDone)
	return t.conn.committed(err, t.conn.outcomeOfCommit(err))
}

func (t *watchedDriverTx) Rollback() error {
	err := t.inner.Rollback()
	t.conn.recordingTx = nil
	if err != nil && t.conn.state == txOpen {
		t.conn.discard = true // Only the end of the connection certainly ends the transaction.
	}
	t.conn.end(t.conn.afterDrop())
	return err
}
