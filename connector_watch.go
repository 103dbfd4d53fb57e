package compensator

import (
	"errors"
	"fmt"
)

// errImplicitCommit is reported when entries became durable before their transaction's Commit. They run.
var errImplicitCommit = errors.New("compensator: DDL or a nested BEGIN committed a transaction that holds entries")

// txState is what a watched connection knows about its transaction.
type txState uint8

const (
	txClosed   txState = iota
	txOpen             // statements join it
	txAborted          // the server rolled it back on its own; the handle looks open
	txDoubtful         // a statement may have begun or ended it; the server has to be asked
	txDetached         // an XA transaction after XA END: no statement joins it, and it is not over
)

// txWatch follows the transaction of one connection through everything that can begin or end it. Like the
// connection, it serves one goroutine at a time. It must never take a closed transaction for an open one:
// an entry recorded then would be durable on its own. All other mistakes cost time only, since nothing runs
// before its row was read back.
type txWatch struct {
	state    txState
	implicit bool       // autocommit was touched: with no BEGIN, a transaction may be open all the same
	discard  bool       // a rollback of ours failed, or the server is read-only: the connection must not be used again
	watched  *watchedTx // nil until an entry asks for it
}

// current is the transaction for an entry to enlist in.
func (t *txWatch) current() *watchedTx {
	if t.state == txClosed {
		return noTransaction()
	}
	if t.watched != nil {
		return t.watched
	}
	t.watched = new(watchedTx)
	switch t.state {
	case txAborted:
		t.watched.abort()
	case txDoubtful, txDetached:
		t.watched.suspend(ErrNoTransaction)
	}
	return t.watched
}

func (t *txWatch) refusal() error {
	if t.watched == nil {
		return nil
	}
	return t.watched.refusal()
}

// begun follows a statement that begins a transaction, and so commits the one that was open.
func (t *txWatch) begun(err error) {
	t.committedImplicitly(err)
	if err == nil {
		t.state = txOpen
	}
}

// committedImplicitly follows a statement that commits the open transaction without being asked to. When it
// failed it may have got that far or not. An aborted transaction has had its end, and keeps it.
func (t *txWatch) committedImplicitly(err error) {
	switch {
	case t.state == txClosed:
	case err == nil && t.state == txOpen:
		if t.watched != nil {
			warnConnector(errImplicitCommit)
		}
		t.end(committed)
	default:
		t.end(commitUnknown)
		if err != nil {
			t.doubt()
		}
	}
}

// committed follows a COMMIT and returns the error to give to the caller.
func (t *txWatch) committed(err error) error {
	t.discard = t.discard || isReadOnly(err)
	enlisted, outcome := t.watched != nil, classifyCommit(err)
	t.end(outcome)
	if enlisted && outcome == commitUnknown {
		return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
	}
	return err
}

// refused follows a ROLLBACK sent in place of a COMMIT and returns the error to give to the caller.
func (t *txWatch) refused(refusal, rollback error) error {
	t.end(rolledBack)
	if rollback == nil {
		return refusal
	}
	t.discard = true // only closing the connection is sure to end the transaction now
	return fmt.Errorf("%w (rollback: %w)", refusal, rollback)
}

// dropped is how the transaction ends when it is rolled back or its connection closed.
func (t *txWatch) dropped() commitOutcome {
	if t.state == txDoubtful || t.state == txDetached {
		return commitUnknown
	}
	return rolledBack
}

func (t *txWatch) end(outcome commitOutcome) {
	t.state = txClosed
	if t.implicit {
		t.state = txDoubtful
	}
	if w := t.watched; w != nil {
		t.watched = nil
		w.end(outcome)
	}
}

// reset follows the connection's way through the pool. A transaction begun by a text and left behind is
// still open on the server: whoever uses the connection next decides about it.
func (t *txWatch) reset() {
	switch t.state {
	case txClosed:
	case txAborted:
		t.end(rolledBack)
	default:
		t.end(commitUnknown)
		t.state = txDoubtful
	}
}

// failed follows an error of any statement.
func (t *txWatch) failed(err error) {
	t.discard = t.discard || isReadOnly(err)
	if t.state == txClosed {
		return
	}
	switch aborts, doubtful := abortsTransaction(err); {
	case aborts:
		t.state = txAborted
		if t.watched != nil {
			t.watched.abort()
		}
	case doubtful:
		t.doubt()
	}
}

func (t *txWatch) doubt() {
	if t.state == txAborted || t.state == txDetached {
		return
	}
	t.state = txDoubtful
	if t.watched != nil {
		t.watched.suspend(ErrNoTransaction)
	}
}

// proven settles a doubt with the server's answer.
func (t *txWatch) proven(open bool) {
	if !open {
		t.end(commitUnknown)
		t.state = txClosed
		return
	}
	t.state = txOpen
	if t.watched != nil {
		t.watched.suspend(nil)
	}
}

// after follows a statement sent as text and returns the error to give to the caller.
func (t *txWatch) after(kind sqlKind, query string, err error) error {
	if kind == sqlPlain {
		if err != nil {
			t.failed(err)
		}
		return err
	}
	switch kind {
	case sqlBegin:
		t.begun(err)
	case sqlDDL:
		t.committedImplicitly(err)
	case sqlCommit, sqlCommitChain:
		return t.afterCommit(kind == sqlCommitChain, err)
	case sqlRollback, sqlRollbackChain:
		t.afterRollback(kind == sqlRollbackChain, err)
	case sqlSavepoint, sqlRollbackTo:
		t.afterSavepoint(kind, query, err)
	case sqlXAStart, sqlXAEnd, sqlXAPrepare, sqlXACommit, sqlXARollback:
		return t.afterXA(kind, err)
	default:
		t.implicit = t.implicit || kind == sqlAutocommit
		t.failed(err)
		t.doubt()
	}
	return err
}

func (t *txWatch) afterCommit(chain bool, err error) error {
	answer := t.committed(err)
	switch {
	case err != nil && classifyCommit(err) == commitUnknown:
		t.doubt() // refused by the parser, perhaps
	case err == nil && chain:
		t.state = txOpen
	}
	return answer
}

func (t *txWatch) afterRollback(chain bool, err error) {
	if err != nil {
		t.doubt()
		return
	}
	t.end(t.dropped())
	if chain {
		t.state = txOpen
	}
}

func (t *txWatch) afterSavepoint(kind sqlKind, query string, err error) {
	switch {
	case err != nil:
		t.failed(err)
	case t.watched == nil:
	case kind == sqlSavepoint:
		t.watched.savepoint(savepointName(query))
	default:
		t.watched.back(savepointName(query))
	}
}

// afterXA does not compare xids: a connection has one XA transaction, unless it was prepared and let go.
// Committing that one from elsewhere is not seen here, and its outcome stays unknown.
func (t *txWatch) afterXA(kind sqlKind, err error) error {
	switch {
	case kind == sqlXAStart:
		t.begun(err)
	case kind == sqlXACommit && t.state == txDetached:
		return t.committed(err)
	case err != nil:
		t.failed(err)
	case kind == sqlXAEnd && t.state != txClosed:
		t.state = txDetached
		if t.watched != nil {
			t.watched.suspend(ErrNoTransaction)
		}
	case kind == sqlXARollback && (t.state == txDetached || t.state == txAborted):
		t.end(rolledBack)
	}
	return err
}
