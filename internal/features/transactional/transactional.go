// Package transactional runs handlers in a transaction that also stores their outcome. So the writes of such a handler
// in its transaction happen exactly once.
package transactional

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/processlog"
)

// Settings are what transactional handlers need from the database.
type Settings struct {
	// Begin starts the transaction that a handler and its outcome share.
	Begin func(ctx context.Context) (Transaction, error)

	// ServersFault examines an error that a transaction of Begin, or one of its statements, has returned. The result
	// possible is true if a condition of the server may have caused the error. The result wholeServer is true if this
	// condition concerns the whole server.
	ServersFault func(err error) (possible, wholeServer bool)
}

// Transaction is a transaction that a handler's effect and its outcome share.
type Transaction interface {
	processlog.Tx
	Over() error // returns an error after the transaction has ended; an unknown state is not an end
	Commit() error
	Rollback()
}

// Handler is a handler or a compensation that works in a transaction.
type Handler func(ctx context.Context, tx Transaction, row *processlog.Row) error

// CallHandler is a handler that begins its transaction when its work outside the database is done. It calls begin at
// most once.
type CallHandler func(ctx context.Context, begin func() (Transaction, error), row *processlog.Row) error

// Transactions runs transactional handlers for an engine.
type Transactions struct {
	Settings
	e *engine.Engine
}

// New makes the transactions of an engine.
func New(e *engine.Engine, s Settings) *Transactions { return &Transactions{s, e} }

// Attach makes the handler and the compensation of a type work in a transaction. Either may be nil.
func (d *Transactions) Attach(t *engine.Type, run, undo Handler) {
	if run != nil {
		t.Run = func(a *engine.Attempt) engine.Result { return d.runInTx(a, run) }
	}
	if undo != nil {
		t.Undo = func(a *engine.Attempt) engine.Result { return d.runInTx(a, undo) }
	}
}

// AttachCall lets the handler of a type work without a transaction first, and begin its transaction later by a function
// call. Call AttachCall when the type is registered.
func (d *Transactions) AttachCall(t *engine.Type, run CallHandler) {
	t.Run = func(a *engine.Attempt) engine.Result { return d.runCall(a, run) }
}

var errEntryChanged = fmt.Errorf("%w: the transaction was rolled back", processlog.ErrLeaseLost)

// runInTx stores the outcome with the transaction's last statement, if the row still has the version of the claim. So
// the outcome and the handler's effect commit together or not at all.
func (d *Transactions) runInTx(a *engine.Attempt, handler Handler) engine.Result {
	t := d.newAttemptTx(a)
	defer t.close()
	tx, err := t.beginTx()
	if err != nil {
		return engine.Result{Err: verdict.NotCalled(err)}
	}
	if result, expired := d.e.TooLate(a); expired { // Begin may have taken long.
		return result
	}
	return t.storeSuccess(handler(a.Context(), tx, &a.Row))
}

// runCall treats a handler that never begins the transaction like a handler without one.
func (d *Transactions) runCall(a *engine.Attempt, handler CallHandler) engine.Result {
	t := d.newAttemptTx(a)
	defer t.close()
	err := handler(a.Context(), t.beginOnce, &a.Row)
	switch {
	case t.beginErr != nil && a.Context().Err() != nil:
		// The attempt's context ended before the transaction could begin. The handler's work before the transaction
		// took too long, so the attempt must count as a failure.
		return engine.Result{Err: fmt.Errorf("the call returned too late: %w", context.Cause(a.Context()))}
	case t.beginErr != nil:
		return engine.Result{Err: verdict.LibraryUnavailable(t.beginErr)}
	case t.tx == nil:
		return engine.Result{Err: usererr.Of(err)}
	}
	failpoint.Reach(failpoint.ThenReturned)
	return t.storeSuccess(err)
}

// attemptTx is used by the goroutine of the attempt only.
type attemptTx struct {
	*Transactions
	a        *engine.Attempt
	ctx      context.Context
	abandon  context.CancelFunc
	detach   func() bool // lets the transaction outlive the attempt's context; false if that context has ended
	tx       Transaction // nil before it has begun
	beginErr error       // error of the try to begin the transaction; nil: none
	isOpen   bool
}

func (d *Transactions) newAttemptTx(a *engine.Attempt) *attemptTx {
	t := &attemptTx{Transactions: d, a: a}
	t.ctx, t.abandon = context.WithCancel(context.WithoutCancel(a.Context()))
	t.detach = context.AfterFunc(a.Context(), t.abandon)
	return t
}

// close rolls back an open transaction, also after a panic or runtime.Goexit.
func (t *attemptTx) close() {
	if t.isOpen {
		t.tx.Rollback()
	}
	t.abandon()
}

func (t *attemptTx) beginTx() (Transaction, error) {
	tx, err := t.Begin(t.ctx)
	if err != nil {
		t.beginErr = err
		return nil, err
	}
	t.tx, t.isOpen = tx, true
	return tx, nil
}

var errBegunTwice = errors.New("compensator: a middleware has called a handler of HandleCall twice in one attempt")

func (t *attemptTx) beginOnce() (Transaction, error) {
	if t.tx != nil {
		return nil, errBegunTwice
	}
	// The handler has done its work outside the database. So if no success is stored from now on, the outcome of the
	// attempt is unknown.
	t.a.Acted = true
	failpoint.Reach(failpoint.CallReturned)
	if ctx := t.a.Context(); ctx.Err() != nil {
		t.beginErr = context.Cause(ctx)
		return nil, t.beginErr
	}
	return t.beginTx()
}

func (t *attemptTx) storeSuccess(err error) engine.Result {
	a, ctxErr := t.a, t.a.Context().Err
	if err != nil {
		// Blame the server only if the attempt's context has not ended. After a timeout of the attempt, the error
		// counts as a failure of the handler.
		if possible, wholeServer := t.ServersFault(usererr.Safe(err)); possible && ctxErr() == nil {
			err = verdict.ServerCaused(err, wholeServer)
		}
		return engine.Result{Err: usererr.Of(err)}
	}
	if ctxErr() != nil || !t.detach() {
		return engine.Result{Err: fmt.Errorf("handler returned too late: %w", context.Cause(a.Context()))}
	}
	if err := t.tx.Over(); err != nil {
		return engine.Result{Err: fmt.Errorf("handler returned nil: %w", err)}
	}
	token := processlog.NewToken()
	if err := t.succeedIn(t.ctx, t.tx, a, token); err != nil {
		return engine.Result{Err: err, MovedOn: err == errEntryChanged}
	}
	t.isOpen = false
	sentAt := time.Now()
	return t.resultOfCommit(a, t.tx.Commit(), token, sentAt)
}

// succeedIn writes token, which identifies this write when the row is read later.
func (d *Transactions) succeedIn(ctx context.Context, tx Transaction, a *engine.Attempt, token processlog.Token) error {
	ctx, cancel := context.WithTimeout(ctx, engine.StatementTimeout)
	defer cancel()
	err := d.e.Store.SettleTx(ctx, tx, token, a.Type.OutcomeOf(&a.Row, nil, nil))
	switch {
	case err == nil:
		failpoint.Reach(failpoint.OutcomeInTransaction)
		return nil
	case errors.Is(err, processlog.ErrLeaseLost):
		return errEntryChanged
	case errors.Is(err, processlog.ErrNoTransaction) && !errors.Is(err, processlog.ErrTxAborted):
		return err // The handler ended the transaction.
	}
	return d.serverError(err)
}

func (d *Transactions) serverError(err error) error {
	_, wholeServer := d.ServersFault(err)
	return verdict.ServerCaused(err, wholeServer)
}

// resultOfCommit returns the result of a commit. If the reply to COMMIT was lost, resultOfCommit reads the row. The
// transaction has committed if the row has the token of the parameter token. If the outcome stays unknown, the attempt
// does not count.
func (d *Transactions) resultOfCommit(a *engine.Attempt, err error, token processlog.Token, sentAt time.Time) engine.Result {
	if err == nil {
		failpoint.Reach(failpoint.HandlerCommitted)
		return engine.Result{Stored: true, Token: token, SentAt: sentAt}
	}
	switch {
	case errors.Is(err, processlog.ErrCommitUnknown):
	case processlog.IsSessionError(err): // The handler ignored that Record had refused the session.
		return engine.Result{Err: d.serverError(fmt.Errorf("commit: %w", err))}
	case errors.Is(err, processlog.ErrNotRecorded), errors.Is(err, processlog.ErrNoTransaction):
		// The handler continued after Record had refused an entry, or after its transaction had ended.
		return engine.Result{Err: fmt.Errorf("commit: %w", err)}
	default:
		return engine.Result{Err: d.serverError(fmt.Errorf("commit: %w", err))}
	}
	ctx, cancel := d.e.Statement()
	defer cancel()
	sentAt = time.Now()
	row, readErr := d.e.Store.Resolve(ctx, a.Row.ID)
	switch {
	case readErr == nil && row.Token == token:
		return engine.Result{Stored: true, Token: token, SentAt: sentAt}
	case readErr == nil:
		return engine.Result{Err: d.serverError(fmt.Errorf("commit: %w", err))}
	}
	// It is unknown whether the transaction has committed. The engine now stores an outcome for the claimed version of
	// the row. If the transaction has committed, the row has a newer version, so this write changes nothing.
	return engine.Result{Err: verdict.LibraryUnavailable(fmt.Errorf("commit: %w; %w", err, readErr))}
}
