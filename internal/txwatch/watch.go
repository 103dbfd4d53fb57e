package txwatch

import (
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/processlog"
)

// errImplicitCommit is logged when another statement commits a transaction with entries before the caller calls Commit.
// These entries run nevertheless.
var errImplicitCommit = errors.New("compensator: DDL or a nested BEGIN committed a transaction that holds entries")

type txState uint8

const (
	txClosed   txState = iota
	txOpen             // a transaction is open, and statements run inside it
	txAborted          // the server has rolled the transaction back, but its handle still looks open
	txDoubtful         // a statement may have begun or ended the transaction; the server must be asked
	txDetached         // an XA transaction after XA END: no statement joins it, but it has not ended
)

// txWatch follows the transaction of one connection. One goroutine uses a txWatch at a time. A txWatch must never treat
// a closed transaction as open, because the insert of an entry would then commit by itself. Any other mistake only
// delays an entry.
type txWatch struct {
	state    txState
	implicit bool // whether autocommit was changed, so that a transaction may begin without a BEGIN
	// discard is true if the connection must not be used again.
	discard bool
	// urgent says that an error may have ended the transaction. If the state is doubtful, the server must then be asked
	// before any other statement is sent.
	urgent  bool
	unended bool // whether a COMMIT failed and no statement has ended its transaction since
	// suspect says that nothing but an error can have ended the transaction. If the server then has no open
	// transaction, it has certainly rolled the transaction back.
	suspect     bool
	reading     int // number of driver.Rows that were not closed yet
	currentTx   *Tx // the open transaction, as the library sees it; nil until the first probe
	recordingTx *Tx // transaction that the library began on this connection; it stays set after the end of the transaction
}

func (t *txWatch) current() *Tx {
	if t.state == txClosed {
		return noTransaction()
	}
	if t.currentTx != nil {
		return t.currentTx
	}
	// This is the first entry of the transaction.
	t.currentTx = new(Tx)
	switch t.state {
	case txAborted:
		t.currentTx.abort()
	case txDoubtful, txDetached:
		t.currentTx.suspend(processlog.ErrNoTransaction)
	}
	return t.currentTx
}

// mustKnow reports whether the server must be asked before the next statement whether the transaction is still open. If
// the transaction has ended, the statement would commit by itself. mustKnow returns false if the service began the
// transaction, and only the service's own statements made its state doubtful, for example CALL. The service must then
// know what its statements do.
func (t *txWatch) mustKnow() bool {
	return t.state == txDoubtful && (t.recordingTx != nil || t.urgent && t.currentTx != nil)
}

// beforeLoss returns an error for a statement whose transaction has ended, so that the statement is not sent.
func (t *txWatch) beforeLoss(kind sqlKind) error {
	switch {
	case t.recordingTx != nil:
		return t.recordingTx.Over()
	// After the server has rolled the transaction back, these statements would commit by themselves.
	case t.state == txAborted && t.currentTx != nil && (kind == sqlPlain || kind == sqlDoubt || kind == sqlDDL):
		return t.currentTx.Err()
	}
	return nil
}

func (t *txWatch) doomed() error {
	// nil means that a commit does no harm: the transaction has no entries, or it has already ended.
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

// afterBegin is called after a BEGIN. It also ends a transaction that was open before, because a BEGIN commits this
// transaction.
func (t *txWatch) afterBegin(err error) {
	t.committedImplicitly(err)
	t.discard = t.discard || unfit(err)
	if err == nil {
		t.state = txOpen
	}
}

// committedImplicitly is called after a statement that commits the open transaction as a side effect. If the statement
// failed, or the state was not certain, the outcome of the transaction is unknown. A transaction that the server has
// rolled back stays aborted.
func (t *txWatch) committedImplicitly(err error) {
	switch {
	case t.state == txClosed:
	case err == nil && t.state == txOpen:
		// Log the error, because no call of Commit can return it.
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

func (t *txWatch) committed(err error, outcome Outcome) error {
	t.discard = t.discard || unfit(err)
	// The call t.end below sets currentTx to nil.
	enlisted := t.currentTx != nil
	t.end(outcome)
	if enlisted && outcome == Unknown {
		return fmt.Errorf("%w: %w", processlog.ErrCommitUnknown, err)
	}
	return err
}

func (t *txWatch) afterRefusal(refusal, rollback error) error {
	aborted := t.state == txAborted
	t.end(RolledBack)
	if rollback == nil || aborted {
		return refusal
	}
	t.discard = true // Only the end of the connection certainly ends the transaction.
	return fmt.Errorf("%w (rollback: %w)", refusal, rollback)
}

func (t *txWatch) afterDrop() Outcome {
	// In state txDoubtful, a statement such as CALL may have committed the transaction. But if suspect is true, only an
	// error can have ended the transaction, so it was rolled back. In state txDetached, XA PREPARE may have kept the
	// transaction.
	if t.state == txDoubtful && !t.suspect || t.state == txDetached {
		return Unknown
	}
	return RolledBack
}

func (t *txWatch) end(outcome Outcome) {
	t.state, t.suspect, t.urgent, t.unended = txClosed, false, false, false
	// If autocommit was changed, the next statement may begin a transaction without a BEGIN.
	if t.implicit {
		t.state = txDoubtful
	}
	if w := t.currentTx; w != nil {
		t.currentTx = nil
		w.end(outcome)
	}
}

// reset is called when the pool hands out the connection again. A transaction that was begun by a text such as BEGIN
// may still be open. The new user of the connection decides its outcome, so the outcome is unknown here.
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

// unfit reports whether err shows that the connection is no longer usable. The caller must then discard the connection.
// A borrowed connection comes from a pool that does not see err, so that pool would keep the connection.
func unfit(err error) bool { return mysqlerr.IsReadOnly(err) || errors.Is(err, driver.ErrBadConn) }

// perhapsElsewhere reports whether a table is missing. The session may then have selected another database. The caller
// must discard the connection, because the pool would hand out the same session again.
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
		// The variable suspect says whether nothing but an error can have ended the transaction. In state txOpen, err
		// is the only candidate. In state txDoubtful, an earlier statement may have ended the transaction, so the old
		// value stays.
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
	// In the states txAborted and txDetached, it is certain that no entry can join the transaction. Keep these states,
	// because txDoubtful would only be a guess.
	if t.state == txAborted || t.state == txDetached {
		return
	}
	t.state, t.suspect = txDoubtful, false
	if t.currentTx != nil {
		t.currentTx.suspend(processlog.ErrNoTransaction)
	}
}

func (t *txWatch) proven(open bool) {
	switch {
	case !open && t.suspect:
		t.aborted()
		return
	// An error made the state doubtful, so the caller does not know that the transaction has ended. The state txAborted
	// refuses the statements that the caller still sends for this transaction.
	case !open && t.urgent && t.currentTx != nil:
		t.state, t.urgent = txAborted, false
		t.currentTx.end(Unknown)
		return
	case !open:
		// The transaction has ended, because the server has answered that no transaction is open. This answer is
		// certain with any value of autocommit.
		t.end(Unknown)
		t.state = txClosed
		return
	}
	t.state, t.suspect, t.urgent = txOpen, false, false
	if t.currentTx != nil {
		t.currentTx.suspend(nil)
	}
}

// ErrRowsOpen replaces driver.ErrBadConn if rows of an earlier query are open. The MySQL driver has then sent nothing.
var ErrRowsOpen = errors.New("compensator: rows of an earlier query are open on this transaction, and its connection takes no other statement: read them to the end, or Close them, before this call")

func (t *txWatch) busy(err error) error {
	if t.reading > 0 && errors.Is(err, driver.ErrBadConn) {
		return ErrRowsOpen
	}
	return nil
}

func (t *txWatch) afterStatement(kind sqlKind, query string, err error) error {
	if busy := t.busy(err); busy != nil {
		return busy
	}
	if kind == sqlPlain {
		if err != nil && !provesOpen(query, err) {
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
		// Statements that may change autocommit are not parsed further, so their value is unknown. The field implicit
		// never becomes false again.
		t.implicit = t.implicit || kind == sqlAutocommit
		if err != nil {
			t.afterError(err)
		}
		// A statement of this kind may end the transaction even without an error. So the method doubt sets suspect to
		// false, even if afterError has set suspect to true.
		t.doubt()
	}
	return err
}

func (t *txWatch) afterCommit(chain bool, err error) error {
	outcome := Classify(err)
	answer := t.committed(err, outcome)
	switch {
	case outcome == Unknown:
		// The server or SQLite may have refused the COMMIT without executing it. Then the transaction is still open.
		// The connection must not return to its pool before the caller ends the transaction.
		t.doubt()
		t.unended = true
	case err == nil && chain:
		t.state = txOpen
	}
	return answer
}

func (t *txWatch) afterRollback(chain bool, err error) {
	if err != nil {
		t.doubt() // A failed ROLLBACK may have taken effect.
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

// afterXA is called after each XA statement. It does not compare xids, because a connection has only one XA transaction
// at a time. Another connection may commit a prepared transaction, so the outcome of a prepared transaction stays
// unknown.
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
