package txwatch

import (
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/processlog"
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
	implicit bool // autocommit was touched: with no BEGIN, a transaction may be open all the same
	discard  bool // a rollback failed, the session was left inside a transaction, or an error was unfit: not to be used again
	urgent   bool // an error has raised the doubt, or met it: nothing may be sent before it is settled
	unended  bool // a COMMIT has failed, and nothing has ended its transaction since
	suspect  bool // the doubt comes from an error alone: if no transaction is open, the server has rolled it back
	reading  int  // rows that are open
	watched  *Tx  // nil until an entry asks for it
	ours     *Tx  // the transaction that the library began on this connection, also once it is over
}

// current is the transaction for an entry to enlist in.
func (t *txWatch) current() *Tx {
	if t.state == txClosed {
		return noTransaction()
	}
	if t.watched != nil {
		return t.watched
	}
	// No entry has asked before, so that nobody was told of what has happened: it is born knowing it.
	t.watched = new(Tx)
	switch t.state {
	case txAborted:
		t.watched.abort()
	case txDoubtful, txDetached:
		t.watched.suspend(processlog.ErrNoTransaction)
	}
	return t.watched
}

// mustKnow reports whether a doubt is to be settled before anything is sent: what was meant for a transaction that is
// no more would be done for good. Of transactions that are none of ours, only those with entries matter, and only a
// doubt that an error has raised: what their own statements do is up to them.
func (t *txWatch) mustKnow() bool {
	return t.state == txDoubtful && (t.ours != nil || t.urgent && t.watched != nil)
}

// lost is why a statement must not be sent: the transaction it was meant for is over.
func (t *txWatch) lost(kind sqlKind) error {
	switch {
	case t.ours != nil:
		return t.ours.Over()
	// Of a transaction that is none of ours what would be done for good is refused; what begins, ends or marks one is
	// let pass.
	case t.state == txAborted && t.watched != nil && (kind == sqlPlain || kind == sqlDoubt || kind == sqlDDL):
		return t.watched.Err()
	}
	return nil
}

// doomed is why a statement must not be sent that commits, or may: an entry was not written.
func (t *txWatch) doomed() error {
	// One that has ended has nothing left that could be committed without its entry.
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

// begun follows a statement that begins a transaction, and so commits the one that was open.
func (t *txWatch) begun(err error) {
	t.committedImplicitly(err)
	t.discard = t.discard || unfit(err)
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
		// Nobody called Commit, so nobody else can be told: the entries are durable, and run.
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

// committed follows a COMMIT, of which outcome came, and returns the error to give to the caller.
func (t *txWatch) committed(err error, outcome Outcome) error {
	t.discard = t.discard || unfit(err)
	enlisted := t.watched != nil // asked before end, which lets go of it
	t.end(outcome)
	if enlisted && outcome == Unknown {
		return fmt.Errorf("%w: %w", processlog.ErrCommitUnknown, err)
	}
	return err
}

// refused follows a ROLLBACK sent in place of a COMMIT and returns the error to give to the caller.
func (t *txWatch) refused(refusal, rollback error) error {
	aborted := t.state == txAborted
	t.end(RolledBack)
	if rollback == nil || aborted {
		return refusal
	}
	t.discard = true // only closing the connection is sure to end the transaction now
	return fmt.Errorf("%w (rollback: %w)", refusal, rollback)
}

// dropped is how the transaction ends when it is rolled back or its connection closed.
func (t *txWatch) dropped() Outcome {
	// A procedure may have committed, or XA PREPARE may have kept it. Of an error alone nothing can have come but a
	// rollback.
	if t.state == txDoubtful && !t.suspect || t.state == txDetached {
		return Unknown
	}
	return RolledBack
}

func (t *txWatch) end(outcome Outcome) {
	t.state, t.suspect, t.urgent, t.unended = txClosed, false, false, false
	// With autocommit=0 the next statement begins a transaction, and no BEGIN is seen.
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

// unfit reports whether err says that the connection is of no more use. Package sql closes one that fails with
// ErrBadConn, but a pool that has lent it sees no errors.
func unfit(err error) bool { return mysqlerr.IsReadOnly(err) || errors.Is(err, driver.ErrBadConn) }

// perhapsElsewhere reports whether err may come of a session that somebody has left in another database. A pool hands the same
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
		// Only where it was known to be open before can the error alone have ended it; an older doubt has other
		// explanations.
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
	// Both are known better than a doubt: nothing but an end leads out of them.
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
	case !open && t.urgent && t.watched != nil: // what comes next is still meant for it
		t.state, t.urgent = txAborted, false
		t.watched.end(Unknown)
		return
	case !open:
		// The server says so, whatever the session's autocommit is.
		t.end(Unknown)
		t.state = txClosed
		return
	}
	t.state, t.suspect, t.urgent = txOpen, false, false
	if t.watched != nil {
		t.watched.suspend(nil)
	}
}

// ErrRowsOpen is returned in place of driver.ErrBadConn. The MySQL driver answers a statement so while rows of an earlier one
// are open, and sends nothing.
var ErrRowsOpen = errors.New("compensator: rows of an earlier query are open on this transaction, and its connection takes no other statement: read them to the end, or Close them, before this call")

// busy names the cause where the driver has sent nothing because rows are open.
func (t *txWatch) busy(err error) error {
	if t.reading > 0 && errors.Is(err, driver.ErrBadConn) {
		return ErrRowsOpen
	}
	return nil
}

// after follows a statement sent as text and returns the error to give to the caller.
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
		// It stays so: whether it was switched on or off is not read.
		t.implicit = t.implicit || kind == sqlAutocommit
		if err != nil {
			t.failed(err)
		}
		t.doubt() // on top of the error's, which stays urgent and is suspected no more: the statement may have done it
	}
	return err
}

func (t *txWatch) afterCommit(chain bool, err error) error {
	outcome := Classify(err)
	answer := t.committed(err, outcome)
	switch {
	case outcome == Unknown:
		// Refused by the parser, perhaps, or by SQLite, and the transaction is still open. It may be committed again or rolled back, by a
		// text, too; if it is not, the connection must not go back to its pool with it.
		t.doubt()
		t.unended = true
	case err == nil && chain:
		t.state = txOpen
	}
	return answer
}

func (t *txWatch) afterRollback(chain bool, err error) {
	if err != nil {
		t.doubt() // it may have got through
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
