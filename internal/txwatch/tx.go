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

// Tx is the state of one transaction on a watched connection, as far as entries are concerned. The
// first end wins: later news about the same transaction changes nothing. Its methods may be called
// concurrently.
type Tx struct {
	mu         sync.Mutex // guards the fields below
	state      error      // nil while statements join the transaction
	ended      bool
	outcome    Outcome // once ended
	hooks      []func(Outcome)
	tainted    error
	savepoints []string // set since the taint, as written
}

// noTransaction answers for a connection on which none is open.
func noTransaction() *Tx {
	return &Tx{state: processlog.ErrNoTransaction, ended: true, outcome: RolledBack}
}

// Err is nil while the transaction is open, and ErrTxAborted or another ErrNoTransaction from then on.
func (w *Tx) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// OnEnd has hook called once, with how the transaction ended, by whoever ends it and while that still holds
// the connection: hook must not block. When the transaction has ended, it is called right away. A panic is
// reported and goes no further.
func (w *Tx) OnEnd(hook func(Outcome)) {
	w.mu.Lock()
	ended, outcome := w.ended, w.outcome
	if !ended {
		w.hooks = append(w.hooks, hook)
	}
	w.mu.Unlock()
	if ended {
		runHook(hook, outcome)
	}
}

// Taint says that an entry could not be written: Commit will roll back and return err. Going back to a
// savepoint set before that undoes the taint, for then the caller has given up the entry too.
func (w *Tx) Taint(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tainted == nil {
		w.tainted, w.savepoints = err, nil
	}
}

// Refusal is why Commit must not happen, or nil: an entry was not written, or the transaction has had its end.
func (w *Tx) Refusal() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.tainted != nil && w.ended:
		return fmt.Errorf("%w: %w (%w)", processlog.ErrNotRecorded, w.tainted, w.state)
	case w.tainted != nil:
		return fmt.Errorf("%w: %w", processlog.ErrNotRecorded, w.tainted)
	case w.ended:
		return w.state
	}
	return nil
}

// FullyWatched: the connection sees every error.
func (w *Tx) FullyWatched() bool { return true }

// Over is err once the transaction has ended. A doubt is no end.
func (w *Tx) Over() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		return nil
	}
	return w.state
}

// WasCommitted reports whether it ended by a commit that is known to have happened.
func (w *Tx) WasCommitted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended && w.outcome == Committed
}

// suspend answers err from now on; nil resumes. It does nothing once the transaction has ended.
func (w *Tx) suspend(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.state = err
	}
}

func (w *Tx) abort()              { w.finish(RolledBack, processlog.ErrTxAborted) }
func (w *Tx) end(outcome Outcome) { w.finish(outcome, processlog.ErrNoTransaction) }

func (w *Tx) finish(outcome Outcome, state error) {
	w.mu.Lock()
	if w.ended {
		w.mu.Unlock()
		return
	}
	w.ended, w.outcome, w.state = true, outcome, state
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

// savepoint notes a savepoint set, and back one gone back to. Both matter only after a taint. To the server é is e, and
// ß is s, so a name beyond ASCII may be any other.
func (w *Tx) savepoint(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tainted != nil {
		w.savepoints = append(w.savepoints, name)
	}
}

func (w *Tx) back(name string) {
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

// watchedDriverTx is the driver.Tx of a watched connection.
type watchedDriverTx struct {
	conn  *watchedConn
	inner driver.Tx
}

var _ driver.Tx = (*watchedDriverTx)(nil)

func (t *watchedDriverTx) Commit() error {
	if t.conn.mustKnow() {
		_ = t.conn.askServer(context.Background()) // where it cannot be asked, COMMIT fails too, and says how
	}
	t.conn.ours = nil
	if refusal := t.conn.refusal(); refusal != nil {
		return t.conn.refused(refusal, t.inner.Rollback())
	}
	failpoint.Reach(failpoint.CommitNext)
	err := t.inner.Commit()
	failpoint.Reach(failpoint.CommitDone)
	return t.conn.committed(err, t.conn.cameOf(err))
}

func (t *watchedDriverTx) Rollback() error {
	err := t.inner.Rollback()
	t.conn.ours = nil
	if err != nil && t.conn.state == txOpen {
		t.conn.discard = true // only closing the connection is sure to end the transaction now
	}
	t.conn.end(t.conn.dropped())
	return err
}
