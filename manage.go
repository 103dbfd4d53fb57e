package compensator

import (
	"cmp"
	"context"
	"time"

	"github.com/compensator-go/compensator/internal/txwatch"
	"github.com/compensator-go/compensator/processlog"
)

// CompleteResult describes the entry as it was just before Complete ended it. If the entry was running or had run
// before, its handler may have had effects outside the database. Complete does not undo these effects.
type CompleteResult struct {
	// WasRunning is true if an attempt held the entry. The context of that attempt ends with ErrCancelled. If the
	// attempt runs in another process, its context ends when that process next renews the lease. The outcome of the
	// attempt is dropped.
	WasRunning bool
	WasDead    bool // the entry was dead and waited for a person. Now it does not wait any more
}

// CancelResult describes the entry as Cancel found it.
type CancelResult struct {
	WasRunning, WasDead bool // the same as in CompleteResult
	WasAlready          bool // the entry was cancelled before. Nothing has changed
}

// Complete records that the work was finished elsewhere. The entry does not run again, and a running attempt is asked
// to stop. Complete also works for a dead entry, unless a compensation of the entry has begun.
//
// Complete returns one of these:
//   - nil;
//   - a *StateError if the entry has ended already. If the error is ErrAlreadySucceeded, the work is done and must not
//     be done twice;
//   - ErrNotFound if there is no such entry;
//   - ErrClosed after Close;
//   - any other error, for example ErrBusy. Then nothing has changed. With CompleteTx, roll back the transaction.
func (c *Compensator) Complete(ctx context.Context, ref Ref) (CompleteResult, error) {
	return completed(c.change(ctx, processlog.Change{Ref: ref, Action: processlog.ActionComplete}))
}

// CompleteTx does the same as Complete inside the caller's open transaction. It takes effect when that transaction
// commits. Without an open transaction it returns ErrNoTransaction. After ErrNotFound or a *StateError, tx stays
// usable.
func (c *Compensator) CompleteTx(ctx context.Context, tx Tx, ref Ref) (CompleteResult, error) {
	return completed(c.changeTx(ctx, tx, processlog.Change{Ref: ref, Action: processlog.ActionComplete}))
}

func completed(before processlog.Row, err error) (CompleteResult, error) {
	return CompleteResult{WasRunning: before.LeaseLeft > 0, WasDead: err == nil && before.State == Dead}, err
}

// Cancel records that the work is no longer wanted. It works as Complete does, but never returns ErrAlreadySucceeded.
// If the entry was cancelled before, Cancel returns nil and sets WasAlready.
func (c *Compensator) Cancel(ctx context.Context, ref Ref) (CancelResult, error) {
	return cancelled(c.change(ctx, processlog.Change{Ref: ref, Action: processlog.ActionCancel}))
}

// CancelTx does the same as Cancel inside the caller's open transaction. The cancellation takes effect when that
// transaction commits. An attempt may start before the commit. The success of such an attempt is dropped in two cases:
//
//   - The handler is transactional.
//   - The cancellation commits before the success is stored.
//
// CancelTx returns the errors of Cancel, and ErrNoTransaction.
func (c *Compensator) CancelTx(ctx context.Context, tx Tx, ref Ref) (CancelResult, error) {
	return cancelled(c.changeTx(ctx, tx, processlog.Change{Ref: ref, Action: processlog.ActionCancel}))
}

func cancelled(before processlog.Row, err error) (CancelResult, error) {
	found := CancelResult{WasRunning: before.LeaseLeft > 0}
	if err == nil {
		found.WasDead, found.WasAlready = before.State == Dead, before.State == Cancelled
	}
	return found, err
}

// CompleteTx calls Compensator.CompleteTx for an entry of this type. If the entry has another type, CompleteTx returns
// an *OtherTypeError and changes nothing, and the transaction stays usable.
func (t *Type[T]) CompleteTx(ctx context.Context, tx Tx, ref Ref) (CompleteResult, error) {
	return completed(t.c.changeTx(ctx, tx, processlog.Change{Ref: ref, BusinessType: t.name, Action: processlog.ActionComplete}))
}

// CancelTx calls Compensator.CancelTx for an entry of this type. An entry of another type is refused as in CompleteTx.
func (t *Type[T]) CancelTx(ctx context.Context, tx Tx, ref Ref) (CancelResult, error) {
	return cancelled(t.c.changeTx(ctx, tx, processlog.Change{Ref: ref, BusinessType: t.name, Action: processlog.ActionCancel}))
}

// Reschedule makes a pending or retrying entry due after a delay that begins now. If an attempt is running, its lease
// is not renewed any more. If that attempt fails, its outcome is dropped, and the entry waits until the lease ends.
//
// For an entry in any other state, Reschedule returns a *StateError. It may also return ErrNotFound, ErrBusy or
// ErrClosed. A delay below 0 or above 100 years is a *FieldError.
func (c *Compensator) Reschedule(ctx context.Context, ref Ref, delay time.Duration) error {
	if _, err := (Options{Delay: delay}).delay(); err != nil {
		return err
	}
	_, err := c.change(ctx, processlog.Change{Ref: ref, Action: processlog.ActionReschedule, Delay: delay})
	return err
}

// RescheduleTx does the same as Reschedule inside the caller's open transaction. It takes effect when that transaction
// commits. Its errors are those of Reschedule and ErrNoTransaction.
func (c *Compensator) RescheduleTx(ctx context.Context, tx Tx, ref Ref, delay time.Duration) error {
	if _, err := (Options{Delay: delay}).delay(); err != nil {
		return err
	}
	_, err := c.changeTx(ctx, tx, processlog.Change{Ref: ref, Action: processlog.ActionReschedule, Delay: delay})
	return err
}

func (c *Compensator) change(ctx context.Context, ch processlog.Change) (processlog.Row, error) {
	if c.closed() {
		return processlog.Row{}, ErrClosed
	}
	if err := c.refuseOwn(ctx, ch); err != nil {
		return processlog.Row{}, err
	}
	ch.Token = processlog.NewToken()
	before, err := c.store.Change(c.engine.Reporting(ctx), nil, false, ch)
	if err != nil {
		return before, err
	}
	c.engine.ChangeCommitted(before, ch)
	return before, nil
}

func (c *Compensator) changeTx(ctx context.Context, tx Tx, ch processlog.Change) (processlog.Row, error) {
	if c.closed() {
		return processlog.Row{}, ErrClosed
	}
	if err := c.refuseOwn(ctx, ch); err != nil {
		return processlog.Row{}, err
	}
	ctx, inquiry := c.inquire(ctx, tx, ch.Ref)
	watch, err := c.enlist(ctx, tx)
	if err = cmp.Or(inquiry.refusalOr(err), scopedOf(tx).refuseOwn(ch.Ref)); err != nil {
		return processlog.Row{}, describeNoTransaction(tx, err)
	}
	ch.Token = processlog.NewToken()
	before, err := c.store.Change(ctx, tx, watch != nil && watch.FullyWatched(), ch)
	watch = inquiry.endOr(watch)
	if err = inquiry.refusalOr(err); err != nil {
		return before, describeNoTransaction(tx, err)
	}
	if watch != nil {
		watch.OnEnd(func(outcome txwatch.Outcome) {
			if outcome == txwatch.Committed {
				c.engine.ChangeCommitted(before, ch)
			}
		})
	} else {
		c.engine.AwaitChangeCommit(before, ch)
	}
	return before, nil
}

// Resolve finds out, after ErrCommitUnknown, whether the transaction that recorded ref committed. It waits for a COMMIT
// that is still running. So ErrNotFound means that the transaction was rolled back for good. On Galera call it on the
// node that got the COMMIT. If that node is gone, call it on any node. If the wait takes too long, Resolve returns
// ErrBusy. Call it again.
func (c *Compensator) Resolve(ctx context.Context, ref Ref) (*Entry, error) {
	row, err := c.store.Resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	return c.entry(&row), nil
}
