package txwatch

import (
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/processlog"
)

// errImplicitCommit is logged when a statement commits entries before the Commit of their transaction. The entries run
// nevertheless.
var errImplicitCommit = errors.New("compensator: DDL or a nested BEGIN committed a transaction that holds entries")

// txState is what a watched connection knows about its transaction.
type txState uint8

const (
	txClosed   txState = iota
	txOpen             // a transaction is open, and statements run inside it
	txAborted          // the server has rolled the transaction back, but its handle still looks open
	txDoubtful         // a statement may have begun or ended the transaction; the server must be asked
	txDetached         // an XA transaction after XA END: no statement joins it, but it has not ended
)

// txWatch follows the transaction of one connection through all statements and errors that can begin or end it. Only
// one goroutine uses it at a time, as with the connection.
//
// It must never treat a closed transaction as open, because an entry would then be committed by itself. Any other
// mistake only delays an entry, because no entry runs before its row was read back.
type txWatch struct {
	state    txState
	implicit bool // whether autocommit was changed, so that a transaction may begin without a BEGIN
	// discard is true if the connection must not be used again. The reason is a failed rollback, a session that was left
	// inside a transaction, a session in which the library writes nothing, or an error for which unfit returns true.
	discard bool
	// urgent is true if an error made the state doubtful, or came when it was doubtful. In this case ask the server
	// before anything else is sent.
	urgent  bool
	unended bool // whether a COMMIT failed and no statement has ended its transaction since
	// suspect is true if only an error made the state doubtful. If the server then says that no transaction is open, it
	// has rolled the transaction back.
	suspect     bool
	reading     int // number of open rows
	currentTx   *Tx // state of the open transaction for entries; nil until an entry asks for it
	recordingTx *Tx // transaction that the library began on this connection; it stays set after the end of the transaction
}

// current returns the transaction in which an entry enlists.
func (t *txWatch) current() *Tx {
	if t.state == txClosed {
		return noTransaction()
	}
	if t.currentTx != nil {
		return t.currentTx
	}
	// This is the first entry of the transaction. Create its Tx in the present state.
	t.currentTx = new(Tx)
	switch t.state {
	case txAborted:
		t.currentTx.abort()
	case txDoubtful, txDetached:
		t.currentTx.suspend(processlog.ErrNoTransaction)
	}
	return t.currentTx
}

// mustKnow reports whether the server must be asked for the state before a statement is sent. Without the answer, a
// statement for an ended transaction could be committed by itself. In a transaction of the service, the answer is
// needed only if the transaction has entries and an error made the state doubtful. If the service's own statements made
// the state doubtful, the service is responsible.
func (t *txWatch) mustKnow() bool {
	return t.state == txDoubtful && (t.recordingTx != nil || t.urgent && t.currentTx != nil)
}

// beforeLoss returns an error if a statement must not be sent because its transaction has ended. Otherwise it returns nil.
func (t *txWatch) beforeLoss(kind sqlKind) error {
	switch {
	case t.recordingTx != nil:
		return t.recordingTx.Over()
	// In an aborted transaction of the service, refuse statements that would be committed by themselves. Let statements
	// pass that begin or end a transaction or set a savepoint.
	case t.state == txAborted && t.currentTx != nil && (kind == sqlPlain || kind == sqlDoubt || kind == sqlDDL):
		return t.currentTx.Err()
	}
	return nil
}

// doomed returns an error if a statement that may commit must not be sent, because an entry was not written. Otherwise
// it returns nil.
func (t *txWatch) doomed() error {
	// If the transaction has ended already, no statement can commit it without its entry. So let the statement pass.
	if t.currentTx == nil || t.currentTx.Over() != nil {
		return nil
	}
	return t.currentTx.Refusal()
}

func (t *txWatch) refusal() error {
	if t.currentTx == nil {
		return nil
	}
	return t.currentTx.Refusal()
}

// afterBegin updates the state after a statement that begins a transaction. Such a statement also commits a transaction that
// was open before.
func (t *txWatch) afterBegin(err error) {
	t.committedImplicitly(err)
	t.discard = t.discard || unfit(err)
	if err == nil {
		t.state = txOpen
	}
}

// committedImplicitly updates the state after a statement that commits the open transaction as a side effect. If the
// statement failed, it is unknown whether it has committed. An aborted transaction has ended already and stays aborted.
func (t *txWatch) committedImplicitly(err error) {
	switch {
	case t.state == txClosed:
	case err == nil && t.state == txOpen:
		// Log the error, because no caller gets it from Commit. The entries are committed, and run.
		if t.currentTx != nil {
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

// committed updates the state after a COMMIT with the given outcome. It returns the error for the caller.
func (t *txWatch) committed(err error, outcome Outcome) error {
	t.discard = t.discard || unfit(err)
	enlisted := t.currentTx != nil // Read currentTx before the method end sets it to nil.
	t.end(outcome)
	if enlisted && outcome == Unknown {
		return fmt.Errorf("%w: %w", processlog.ErrCommitUnknown, err)
	}
	return err
}

// afterRefusal updates the state after a ROLLBACK that was sent in place of a COMMIT. It returns the error for the caller.
func (t *txWatch) afterRefusal(refusal, rollback error) error {
	aborted := t.state == txAborted
	t.end(RolledBack)
	if rollback == nil || aborted {
		return refusal
	}
	t.discard = true // The transaction may still be open. Only the end of the connection certainly ends it.
	return fmt.Errorf("%w (rollback: %w)", refusal, rollback)
}

// afterDrop returns the outcome of the transaction after a rollback, or after its connection was closed.
func (t *txWatch) afterDrop() Outcome {
	// The outcome is unknown: a procedure may have committed the transaction, or XA PREPARE may have kept it. If only an
	// error made the state doubtful, the transaction was certainly rolled back.
	if t.state == txDoubtful && !t.suspect || t.state == txDetached {
		return Unknown
	}
	return RolledBack
}

func (t *txWatch) end(outcome Outcome) {
	t.state, t.suspect, t.urgent, t.unended = txClosed, false, false, false
	// With autocommit=0 the next statement begins a transaction without a BEGIN. So the state is doubtful.
	if t.implicit {
		t.state = txDoubtful
	}
	if w := t.currentTx; w != nil {
		t.currentTx = nil
		w.end(outcome)
	}
}

// reset updates the state when the pool hands out the connection. A transaction that was begun by a BEGIN in a text,
// and that nobody ended, is still open on the server. The next user of the connection decides what happens to it.
func (t *txWatch) reset() {
	t.recordingTx = nil
	switch t.state {
	case txClosed:
	case txAborted:
		t.end(RolledBack)
	default:
		t.end(Unknown)
		t.state = txDoubtful
	}
}

// unfit reports whether err means that the connection is no longer usable. database/sql closes a connection after
// ErrBadConn. But the pool behind a borrowed connection does not see the errors, so this package must tell it.
func unfit(err error) bool { return mysqlerr.IsReadOnly(err) || errors.Is(err, driver.ErrBadConn) }

// perhapsElsewhere reports whether err may come from a session that has selected another database. A pool hands out the
// same session again and again, so all attempts of an entry could fail in it.
func perhapsElsewhere(err error) bool { return mysqlerr.Number(err) == mysqlerr.NoSuchTable }

func (t *txWatch) afterError(err error) {
	t.discard = t.discard || unfit(err) || t.recordingTx != nil && perhapsElsewhere(err)
	if t.state == txClosed {
		return
	}
	switch aborts, doubtful := Aborts(err); {
	case aborts:
		t.aborted()
	case doubtful:
		// Set suspect only if the transaction was known to be open before the error. If the state was already doubtful, the
		// transaction may have ended for another reason.
		suspect := t.state == txOpen || t.suspect
		t.doubt()
		t.suspect, t.urgent = suspect, true
	}
}

func (t *txWatch) aborted() {
	t.state, t.suspect, t.urgent = txAborted, false, false
	if t.currentTx != nil {
		t.currentTx.abort()
	}
}

func (t *txWatch) doubt() {
	// Keep these two states, because they say more than a doubtful state. Only the end of the transaction changes them.
	if t.state == txAborted || t.state == txDetached {
		return
	}
	t.state, t.suspect = txDoubtful, false
	if t.currentTx != nil {
		t.currentTx.suspend(processlog.ErrNoTransaction)
	}
}

// proven replaces a doubtful state by the server's answer.
func (t *txWatch) proven(open bool) {
	switch {
	case !open && t.suspect:
		t.aborted()
		return
	case !open && t.urgent && t.currentTx != nil: // The next statement is still meant for this transaction, so mark the transaction as aborted. Because of the mark, the method lost refuses the statement.
		t.state, t.urgent = txAborted, false
		t.currentTx.end(Unknown)
		return
	case !open:
		// The server says that no transaction is open. Its answer is certain with any value of autocommit.
		t.end(Unknown)
		t.state = txClosed
		return
	}
	t.state, t.suspect, t.urgent = txOpen, false, false
	if t.currentTx != nil {
		t.currentTx.suspend(nil)
	}
}

// ErrRowsOpen replaces driver.ErrBadConn if rows of an earlier query are open. In this case the MySQL driver returns
// ErrBadConn for a statement, and sends nothing.
var ErrRowsOpen = errors.New("compensator: rows of an earlier query are open on this transaction, and its connection takes no other statement: read them to the end, or Close them, before this call")

// busy returns ErrRowsOpen if the driver sent nothing because rows are open. Otherwise it returns nil.
func (t *txWatch) busy(err error) error {
	if t.reading > 0 && errors.Is(err, driver.ErrBadConn) {
		return ErrRowsOpen
	}
	return nil
}

// afterStatement updates the state after a statement that was sent as text. It returns the error for the caller.
func (t *txWatch) afterStatement(kind sqlKind, query string, err error) error {
	if busy := t.busy(err); busy != nil {
		return busy
	}
	if kind == sqlPlain {
		if err != nil {
			t.afterError(err)
		}
		return err
	}
	switch kind {
	case sqlBegin:
		t.afterBegin(err)
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
		// Keep implicit true, because this function does not parse whether autocommit was switched on or off.
		t.implicit = t.implicit || kind == sqlAutocommit
		if err != nil {
			t.afterError(err)
		}
		t.doubt() // The statement itself may have ended the transaction, so suspect becomes false. The state stays urgent.
	}
	return err
}

func (t *txWatch) afterCommit(chain bool, err error) error {
	outcome := Classify(err)
	answer := t.committed(err, outcome)
	switch {
	case outcome == Unknown:
		// The parser or SQLite may have refused the COMMIT, so the transaction may still be open. The caller may send
		// COMMIT or ROLLBACK again. If the caller sends neither, the connection must not return to its pool with the
		// transaction.
		t.doubt()
		t.unended = true
	case err == nil && chain:
		t.state = txOpen
	}
	return answer
}

func (t *txWatch) afterRollback(chain bool, err error) {
	if err != nil {
		t.doubt() // The ROLLBACK returned an error, but may have taken effect.
		return
	}
	t.end(t.afterDrop())
	if chain {
		t.state = txOpen
	}
}

func (t *txWatch) afterSavepoint(kind sqlKind, query string, err error) {
	switch {
	case err != nil:
		t.afterError(err)
	case t.currentTx == nil:
	case kind == sqlSavepoint:
		t.currentTx.savepoint(savepointName(query))
	default:
		t.currentTx.afterRollbackTo(savepointName(query))
	}
}

// afterXA updates the state after an XA statement. It does not compare xids, because a connection has only one XA
// transaction. A prepared XA transaction may be committed on another connection. This connection does not see such a
// commit, so the outcome stays unknown.
func (t *txWatch) afterXA(kind sqlKind, err error) error {
	switch {
	case kind == sqlXAStart:
		t.afterBegin(err)
	case kind == sqlXACommit && t.state == txDetached:
		return t.committed(err, Classify(err))
	case err != nil:
		t.afterError(err)
	case kind == sqlXAEnd && t.state != txClosed:
		t.state = txDetached
		if t.currentTx != nil {
			t.currentTx.suspend(processlog.ErrNoTransaction)
		}
	case kind == sqlXARollback && (t.state == txDetached || t.state == txAborted):
		t.end(RolledBack)
	}
	return err
}
