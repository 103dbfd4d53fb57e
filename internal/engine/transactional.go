package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// errFenceLost means that the handler's transaction was rolled back because another process or an admin had changed the
// entry.
var errFenceLost = fmt.Errorf("%w: the transaction was rolled back", processlog.ErrLeaseLost)

// runTx runs a transactional handler. The transaction's last statement stores the outcome if the row still has the
// version of the claim. So the outcome and the handler's effect commit together or not at all. The statement of a
// second attempt would match no row.
func (d *dispatcher) runTx(a *Attempt, handler func(ctx context.Context, tx Transaction, row *processlog.Row) error) (end Result) {
	ctx, abandon := context.WithCancel(context.WithoutCancel(a.ctx))
	defer abandon()
	// The end of the attempt's context ends the handler's transaction. inTime switches this off before the outcome is
	// stored.
	inTime := context.AfterFunc(a.ctx, abandon)
	tx, err := d.Begin(ctx)
	if err != nil {
		return Result{Err: ours(err)}
	}
	open := true
	defer func() {
		if open { // Roll back after a panic or runtime.Goexit too.
			tx.Rollback()
		}
	}()
	if end, late := d.heldUp(a); late { // Begin may have taken long.
		return end
	}
	if err := handler(a.ctx, tx, &a.Row); err != nil {
		// After a timeout the handler is responsible for the error, so do not blame the server.
		if blame := d.Blame(usererr.Safe(err)); a.ctx.Err() == nil && blame != BlameHandler {
			err = serversOwn(err, blame == BlameServer)
		}
		return Result{Err: usererr.Of(err)}
	}
	if a.ctx.Err() != nil || !inTime() {
		return Result{Err: fmt.Errorf("handler returned too late: %w", context.Cause(a.ctx))}
	}
	if err := tx.Over(); err != nil { // The handler returned nil although its transaction had ended.
		return Result{Err: fmt.Errorf("handler returned nil: %w", err)}
	}
	token := processlog.NewToken()
	if err := d.succeedIn(ctx, tx, a, token); err != nil {
		return Result{Err: err}
	}
	open = false
	asked := time.Now()
	return d.committed(a, tx.Commit(), token, asked)
}

// succeedIn stores the success as the transaction's last statement. token identifies this write when the row is read
// later.
func (d *dispatcher) succeedIn(ctx context.Context, tx Transaction, a *Attempt, token processlog.Token) error {
	ctx, cancel := context.WithTimeout(ctx, StatementTimeout)
	defer cancel()
	err := d.Store.SettleTx(ctx, tx, token, a.Type.outcomeOf(&a.Row, nil, nil))
	switch {
	case err == nil:
		failpoint.Reach(failpoint.OutcomeInTransaction)
		return nil
	case errors.Is(err, processlog.ErrLeaseLost):
		return errFenceLost
	case errors.Is(err, processlog.ErrNoTransaction) && !errors.Is(err, processlog.ErrTxAborted):
		return err // The handler ended the transaction.
	}
	return d.refused(err)
}

// refused classifies the database's error when a handler has returned nil but its transaction could not commit.
func (d *dispatcher) refused(err error) error { return serversOwn(err, d.Blame(err) == BlameServer) }

// committed finds out how a handler's transaction ended. If the reply to COMMIT was lost, it compares the row's token.
//
// A rollback counts as a condition of the server: see serversOwn. An outcome that stays unknown costs no attempt.
func (d *dispatcher) committed(a *Attempt, err error, token processlog.Token, asked time.Time) Result {
	if err == nil {
		failpoint.Reach(failpoint.HandlerCommitted)
		return Result{settled: true, token: token, asked: asked}
	}
	switch {
	case errors.Is(err, processlog.ErrCommitUnknown):
	case errors.Is(err, processlog.ErrNotRecorded), errors.Is(err, processlog.ErrNoTransaction):
		// The handler continued after Record had refused an entry, or after its transaction had ended.
		return Result{Err: fmt.Errorf("commit: %w", err)}
	default:
		return Result{Err: d.refused(fmt.Errorf("commit: %w", err))}
	}
	ctx, cancel := d.Statement()
	defer cancel()
	asked = time.Now()
	row, readErr := d.Store.Resolve(ctx, a.Row.ID)
	switch {
	case readErr == nil && row.Token == token:
		return Result{settled: true, token: token, asked: asked}
	case readErr == nil:
		return Result{Err: d.refused(fmt.Errorf("commit: %w", err))}
	}
	// The result is unknown. Storing an outcome under the claimed version is safe: if the commit happened, the row has a
	// later version and the write changes nothing.
	return Result{Err: ours(fmt.Errorf("commit: %w; %w", err, readErr))}
}
