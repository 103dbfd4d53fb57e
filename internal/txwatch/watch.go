package txwatch

import (
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/processlog"
)

// errImplicitCommit is logged when entries become durable before the Commit of their transaction. The entries run.
var errImplicitCommit = errors.New("compensator: DDL or a nested BEGIN committed a transaction that holds entries")

// txState is what a watched connection knows about its transaction.
type txState uint8

const (
	txClosed   txState = iota
	txOpen             // statements join the transaction
	txAborted          // the server rolled the transaction back by itself; the handle looks open
	txDoubtful         // a statement may have begun or ended the transaction; the server must be asked
	txDetached         // an XA transaction after XA END: no statement joins it, but it is not over
)

// txWatch follows the transaction of one connection through everything that can begin or end it. Like the connection,
// it serves one goroutine at a time.
//
// It must never take a closed transaction for an open one, because an entry recorded then would be durable on its own.
// Any other mistake costs only time, because no entry runs before its row was read back.
type txWatch struct {
	state    txState
	implicit bool // autocommit was changed: a transaction may be open without a BEGIN
	discard  bool // do not use the connection again: a rollback failed, the session was left inside a transaction, or an error was unfit
	urgent   bool // an error caused the doubt, or came during it: ask the server before anything else is sent
	unended  bool // a COMMIT failed, and nothing has ended its transaction since
	suspect  bool // only an error caused the doubt: if no transaction is open, the server has rolled it back
	reading  int  // number of open rows
	watched  *Tx  // nil until an entry asks for it
	ours     *Tx  // the transaction that the library began on this connection; stays set after its end
}

// current returns the transaction in which an entry enlists.
func (t *txWatch) current() *Tx {
	if t.state == txClosed {
		return noTransaction()
	}
	if t.watched != nil {
		return t.watched
	}
	// No entry has asked before, so create the Tx with what has happened so far.
	t.watched = new(Tx)
	switch t.state {
	case txAborted:
		t.watched.abort()
	case txDoubtful, txDetached:
		t.watched.suspend(processlog.ErrNoTransaction)
	}
	return t.watched
}

// mustKnow reports whether a doubt must be settled before anything is sent. Otherwise a statement meant for an ended
// transaction would take effect on its own. For a transaction of the service, that is required only if it has entries
// and an error caused the doubt. Doubts from the service's own statements are up to the service.
func (t *txWatch) mustKnow() bool {
	return t.state == txDoubtful && (t.ours != nil || t.urgent && t.watched != nil)
}

// lost returns why a statement must not be sent: the transaction it was meant for is over. Otherwise it returns nil.
func (t *txWatch) lost(kind sqlKind) error {
	switch {
	case t.ours != nil:
		return t.ours.Over()
	// In an aborted transaction of the service, refuse statements that would take effect on their own. Let statements
	// pass that begin, end or mark a transaction.
	case t.state == txAborted && t.watched != nil && (kind == sqlPlain || kind == sqlDoubt || kind == sqlDDL):
		return t.watched.Err()
	}
	return nil
}

// doomed returns why a statement that commits, or may commit, must not be sent: an entry was not written. Otherwise it
// returns nil.
func (t *txWatch) doomed() error {
	// A transaction that has ended cannot be committed without its entry any more.
	if t.watched == nil || t.watched.Over() != nil {
		return nil
	}
	return t.watched.Refusal()
}

func (t *txWatch) refusal() error {
	if t.watched == nil {
		return nil
	}
	return t.watched.Refusal()
}

// begun follows a statement that begins a transaction. Such a statement also commits the transaction that was open.
func (t *txWatch) begun(err error) {
	t.committedImplicitly(err)
	t.discard = t.discard || unfit(err)
	if err == nil {
		t.state = txOpen
	}
}

// committedImplicitly follows a statement that commits the open transaction as a side effect. If the statement failed,
// it may or may not have committed. An aborted transaction has ended already, and stays so.
func (t *txWatch) committedImplicitly(err error) {
	switch {
	case t.state == txClosed:
	case err == nil && t.state == txOpen:
		// No caller called Commit, so the log is the only place for this. The entries are durable, and run.
		if t.watched != nil {
			warnConnector(errImplicitCommit)
		}
		t.end(Committed)
	default:
		t.end(Unknown)
		if err != nil {
			t.doubt()
		}
	}
}

// committed follows a COMMIT with the given outcome. It returns the error for the caller.
func (t *txWatch) committed(err error, outcome Outcome) error {
	t.discard = t.discard || unfit(err)
	enlisted := t.watched != nil // Read this before end clears it.
	t.end(outcome)
	if enlisted && outcome == Unknown {
		return fmt.Errorf("%w: %w", processlog.ErrCommitUnknown, err)
	}
	return err
}

// refused follows a ROLLBACK that was sent in place of a COMMIT. It returns the error for the caller.
func (t *txWatch) refused(refusal, rollback error) error {
	aborted := t.state == txAborted
	t.end(RolledBack)
	if rollback == nil || aborted {
		return refusal
	}
	t.discard = true // Only closing the connection ends the transaction for certain.
	return fmt.Errorf("%w (rollback: %w)", refusal, rollback)
}

// dropped returns the outcome of the transaction when it is rolled back or its connection is closed.
func (t *txWatch) dropped() Outcome {
	// A procedure may have committed it, or XA PREPARE may have kept it. An error alone can only have rolled it back.
	if t.state == txDoubtful && !t.suspect || t.state == txDetached {
		return Unknown
	}
	return RolledBack
}

func (t *txWatch) end(outcome Outcome) {
	t.state, t.suspect, t.urgent, t.unended = txClosed, false, false, false
	// With autocommit=0 the next statement begins a transaction, without a BEGIN.
	if t.implicit {
		t.state = txDoubtful
	}
	if w := t.watched; w != nil {
		t.watched = nil
		w.end(outcome)
	}
}

// reset follows the connection through the pool. A transaction that was begun by a text and left open is still open on
// the server. The next user of the connection decides what happens to it.
func (t *txWatch) reset() {
	t.ours = nil
	switch t.state {
	case txClosed:
	case txAborted:
		t.end(RolledBack)
	default:
		t.end(Unknown)
		t.state = txDoubtful
	}
}

// unfit reports whether err says that the connection is no longer usable. database/sql closes a connection that fails
// with ErrBadConn, but the pool behind a borrowed connection sees no errors.
func unfit(err error) bool { return mysqlerr.IsReadOnly(err) || errors.Is(err, driver.ErrBadConn) }

// perhapsElsewhere reports whether err may come from a session that was left in another database. A pool hands the same
// session out again and again, so all attempts of an entry could fail in it.
func perhapsElsewhere(err error) bool { return mysqlerr.Number(err) == mysqlerr.NoSuchTable }

// failed follows an error of any statement.
func (t *txWatch) failed(err error) {
	t.discard = t.discard || unfit(err) || t.ours != nil && perhapsElsewhere(err)
	if t.state == txClosed {
		return
	}
	switch aborts, doubtful := Aborts(err); {
	case aborts:
		t.aborted()
	case doubtful:
		// The error alone can have ended the transaction only if it was known to be open before. An older doubt has other
		// possible causes.
		suspect := t.state == txOpen || t.suspect
		t.doubt()
		t.suspect, t.urgent = suspect, true
	}
}

func (t *txWatch) aborted() {
	t.state, t.suspect, t.urgent = txAborted, false, false
	if t.watched != nil {
		t.watched.abort()
	}
}

func (t *txWatch) doubt() {
	// Both states are more certain than a doubt. Only an end leaves them.
	if t.state == txAborted || t.state == txDetached {
		return
	}
	t.state, t.suspect = txDoubtful, false
	if t.watched != nil {
		t.watched.suspend(processlog.ErrNoTransaction)
	}
}

// proven settles a doubt with the server's answer.
func (t *txWatch) proven(open bool) {
	switch {
	case !open && t.suspect:
		t.aborted()
		return
	case !open && t.urgent && t.watched != nil: // The next statement is still meant for this transaction, so lost must refuse it.
		t.state, t.urgent = txAborted, false
		t.watched.end(Unknown)
		return
	case !open:
		// The server says that no transaction is open, whatever the session's autocommit is.
		t.end(Unknown)
		t.state = txClosed
		return
	}
	t.state, t.suspect, t.urgent = txOpen, false, false
	if t.watched != nil {
		t.watched.suspend(nil)
	}
}

// ErrRowsOpen replaces driver.ErrBadConn if rows of an earlier query are open. The MySQL driver then returns ErrBadConn
// for a statement, and sends nothing.
var ErrRowsOpen = errors.New("compensator: rows of an earlier query are open on this transaction, and its connection takes no other statement: read them to the end, or Close them, before this call")

// busy returns ErrRowsOpen if the driver sent nothing because rows are open. Otherwise it returns nil.
func (t *txWatch) busy(err error) error {
	if t.reading > 0 && errors.Is(err, driver.ErrBadConn) {
		return ErrRowsOpen
	}
	return nil
}

// after follows a statement that was sent as text. It returns the error for the caller.
func (t *txWatch) after(kind sqlKind, query string, err error) error {
	if busy := t.busy(err); busy != nil {
		return busy
	}
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
		// implicit stays true, because nothing here reads whether autocommit was switched on or off.
		t.implicit = t.implicit || kind == sqlAutocommit
		if err != nil {
			t.failed(err)
		}
		t.doubt() // This doubt replaces the error's doubt. It stays urgent, but is no longer suspect, because the statement itself may have ended the transaction.
	}
	return err
}

func (t *txWatch) afterCommit(chain bool, err error) error {
	outcome := Classify(err)
	answer := t.committed(err, outcome)
	switch {
	case outcome == Unknown:
		// The parser or SQLite may have refused the COMMIT, and the transaction may still be open. The caller may commit
		// it again or roll it back, also by a text. If the caller does neither, the connection must not return to its
		// pool with the transaction.
		t.doubt()
		t.unended = true
	case err == nil && chain:
		t.state = txOpen
	}
	return answer
}

func (t *txWatch) afterRollback(chain bool, err error) {
	if err != nil {
		t.doubt() // The ROLLBACK may have taken effect.
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

// afterXA does not compare xids. A connection has one XA transaction, unless that one was prepared and let go. A commit
// of that one on another connection is not seen here, and its outcome stays unknown.
func (t *txWatch) afterXA(kind sqlKind, err error) error {
	switch {
	case kind == sqlXAStart:
		t.begun(err)
	case kind == sqlXACommit && t.state == txDetached:
		return t.committed(err, Classify(err))
	case err != nil:
		t.failed(err)
	case kind == sqlXAEnd && t.state != txClosed:
		t.state = txDetached
		if t.watched != nil {
			t.watched.suspend(processlog.ErrNoTransaction)
		}
	case kind == sqlXARollback && (t.state == txDetached || t.state == txAborted):
		t.end(RolledBack)
	}
	return err
}
