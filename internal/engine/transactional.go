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

// errFenceLost: the handler's transaction was rolled back because somebody else has moved the entry on.
var errFenceLost = fmt.Errorf("%w: the transaction was rolled back", processlog.ErrLeaseLost)

// runTx runs a transactional handler. The outcome is the transaction's last statement, under the version
// of the claim: it commits with the effect or not at all, and a second attempt's would change no row.
func (d *dispatcher) runTx(a *Attempt, handler func(ctx context.Context, tx Transaction, row *processlog.Row) error) (end Result) {
	ctx, abandon := context.WithCancel(context.WithoutCancel(a.ctx))
	defer abandon()
	inTime := context.AfterFunc(a.ctx, abandon) // the handler's deadline is not that of storing its outcome
	tx, err := d.Begin(ctx)
	if err != nil {
		return Result{Err: ours(err)}
	}
	open := true
	defer func() {
		if open { // also after a panic or Goexit
			tx.Rollback()
		}
	}()
	if end, late := d.heldUp(a); late { // it may have taken long to begin
		return end
	}
	if err := handler(a.ctx, tx, &a.Row); err != nil {
		if blame := d.Blame(usererr.Safe(err)); a.ctx.Err() == nil && blame != BlameHandler { // a timeout is the handler's own
			err = serversOwn(err, blame == BlameServer)
		}
		return Result{Err: usererr.Of(err)}
	}
	if a.ctx.Err() != nil || !inTime() {
		return Result{Err: fmt.Errorf("handler returned too late: %w", context.Cause(a.ctx))}
	}
	if err := tx.Over(); err != nil { // and the handler did not say so
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

// succeedIn writes the success, under a token that tells it from another's, as a transaction's last statement.
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
		return err // the handler ended it
	}
	return d.refused(err)
}

// refused judges an error by which the database did not take a transaction whose handler had returned nil.
func (d *dispatcher) refused(err error) error { return serversOwn(err, d.Blame(err) == BlameServer) }

// committed finds out how a handler's transaction ended. Where the reply to COMMIT was lost, the row's token tells. A transaction
// that was rolled back counts as a condition of the server; see serversOwn. An outcome that stays unknown never counts.
func (d *dispatcher) committed(a *Attempt, err error, token processlog.Token, asked time.Time) Result {
	if err == nil {
		failpoint.Reach(failpoint.HandlerCommitted)
		return Result{settled: true, token: token, asked: asked}
	}
	switch {
	case errors.Is(err, processlog.ErrCommitUnknown):
	case errors.Is(err, processlog.ErrNotRecorded), errors.Is(err, processlog.ErrNoTransaction):
		// The handler went on after Record had refused, or after the transaction had ended under it.
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
	// Nothing is known, and nothing written under the claimed version can do harm: if the commit
	// happened, the version has moved on.
	return Result{Err: ours(fmt.Errorf("commit: %w; %w", err, readErr))}
}
