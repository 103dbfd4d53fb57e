package compensator

import (
	"cmp"
	"context"
	"time"

	"github.com/compensator-go/compensator/internal/txwatch"
	"github.com/compensator-go/compensator/processlog"
)

// CompleteResult tells what Complete found. Effects outside the database stay.
type CompleteResult struct {
	WasRunning bool // an attempt held it. Its context ends with ErrCancelled, elsewhere at its next renewal; its outcome will be dropped
	WasDead    bool // it waited for a person, and does no more
}

// CancelResult tells what Cancel found.
type CancelResult struct {
	WasRunning, WasDead bool // as in CompleteResult
	WasAlready          bool // it was cancelled before, and nothing has changed
}

// Complete records that somebody else finished the work: it will not run again, and an attempt under way is told to
// stop. A dead entry takes it, too, unless a compensation of it has begun. It has four answers: nil; a *StateError, for it is
// too late, which is ErrAlreadySucceeded where the work is done, and must not be done twice; ErrNotFound; and any other error,
// ErrBusy for one: nothing has changed, roll back. The result is for who wants to know more.
func (c *Compensator) Complete(ctx context.Context, ref Ref) (CompleteResult, error) {
	return completed(c.change(ctx, processlog.Change{Ref: ref, Action: ActionComplete}))
}

// CompleteTx is Complete, if and when the caller's open transaction commits.
func (c *Compensator) CompleteTx(ctx context.Context, tx Tx, ref Ref) (CompleteResult, error) {
	return completed(c.changeTx(ctx, tx, processlog.Change{Ref: ref, Action: ActionComplete}))
}

func completed(before processlog.Row, err error) (CompleteResult, error) {
	return CompleteResult{WasRunning: before.LeaseLeft > 0, WasDead: err == nil && before.State == Dead}, err
}

// Cancel records that the work is no longer wanted; otherwise, and in its answers, as Complete, but for ErrAlreadySucceeded.
func (c *Compensator) Cancel(ctx context.Context, ref Ref) (CancelResult, error) {
	return cancelled(c.change(ctx, processlog.Change{Ref: ref, Action: ActionCancel}))
}

// CancelTx is Cancel, if and when the caller's open transaction commits. Until then an attempt may start; its success
// is dropped if its handler is transactional or the cancellation commits first.
func (c *Compensator) CancelTx(ctx context.Context, tx Tx, ref Ref) (CancelResult, error) {
	return cancelled(c.changeTx(ctx, tx, processlog.Change{Ref: ref, Action: ActionCancel}))
}

func cancelled(before processlog.Row, err error) (CancelResult, error) {
	found := CancelResult{WasRunning: before.LeaseLeft > 0}
	if err == nil {
		found.WasDead, found.WasAlready = before.State == Dead, before.State == Cancelled
	}
	return found, err
}

// CompleteTx is Compensator.CompleteTx for this type. An entry of another is an *OtherTypeError, which changes nothing
// and leaves the transaction usable.
func (t *Type[T]) CompleteTx(ctx context.Context, tx Tx, ref Ref) (CompleteResult, error) {
	return completed(t.c.changeTx(ctx, tx, processlog.Change{Ref: ref, BusinessType: t.name, Action: ActionComplete}))
}

// CancelTx is Compensator.CancelTx for an entry of this type; see CompleteTx.
func (t *Type[T]) CancelTx(ctx context.Context, tx Tx, ref Ref) (CancelResult, error) {
	return cancelled(t.c.changeTx(ctx, tx, processlog.Change{Ref: ref, BusinessType: t.name, Action: ActionCancel}))
}

// Reschedule makes a pending or retrying entry due after delay from now. A failure of an attempt under way is then
// dropped, and the entry waits until that lease ends, which is renewed no more.
func (c *Compensator) Reschedule(ctx context.Context, ref Ref, delay time.Duration) error {
	if _, err := (Options{Delay: delay}).delay(); err != nil {
		return err
	}
	_, err := c.change(ctx, processlog.Change{Ref: ref, Action: ActionReschedule, Delay: delay})
	return err
}

// RescheduleTx is Reschedule, if and when the caller's transaction commits.
func (c *Compensator) RescheduleTx(ctx context.Context, tx Tx, ref Ref, delay time.Duration) error {
	if _, err := (Options{Delay: delay}).delay(); err != nil {
		return err
	}
	_, err := c.changeTx(ctx, tx, processlog.Change{Ref: ref, Action: ActionReschedule, Delay: delay})
	return err
}

func validateByHand(h ByHand) error {
	for _, f := range []struct {
		name, value string
		limit       int
	}{{"actor", h.Actor, processlog.MaxIdempotentID}, {"reason", h.Reason, processlog.MaxText}} {
		reason := badText(f.value, f.limit)
		if f.value == "" {
			reason = "is empty"
		}
		if reason != "" {
			return &FieldError{Field: f.name, Reason: reason}
		}
	}
	return nil
}

// SettleByHand records that a person did the work of an entry that is dead, retrying or compensating.
func (c *Compensator) SettleByHand(ctx context.Context, ref Ref, by ByHand) error {
	if err := validateByHand(by); err != nil {
		return err
	}
	_, err := c.change(ctx, processlog.Change{Ref: ref, Action: ActionSettleByHand, Actor: by.Actor, Reason: by.Reason})
	return err
}

// SettleByHandTx is SettleByHand, its audit record included, if and when the caller's open transaction commits.
func (c *Compensator) SettleByHandTx(ctx context.Context, tx Tx, ref Ref, by ByHand) error {
	if err := validateByHand(by); err != nil {
		return err
	}
	_, err := c.changeTx(ctx, tx, processlog.Change{Ref: ref, Action: ActionSettleByHand, Actor: by.Actor, Reason: by.Reason})
	return err
}

func (c *Compensator) change(ctx context.Context, ch processlog.Change) (processlog.Row, error) {
	if c.closed() {
		return processlog.Row{}, ErrClosed
	}
	ch.Token, ch.Cases = processlog.NewToken(), c.cfg.Operations != nil
	before, err := c.store.Change(c.engine.Reporting(ctx), nil, false, ch)
	if err != nil {
		return before, err
	}
	c.engine.Changed(before, ch)
	return before, nil
}

func (c *Compensator) changeTx(ctx context.Context, tx Tx, ch processlog.Change) (processlog.Row, error) {
	if c.closed() {
		return processlog.Row{}, ErrClosed
	}
	ctx, asked := c.inquire(ctx, tx, ch.Ref)
	watch, err := c.enlist(ctx, tx)
	if err = cmp.Or(asked.or(err), scopedOf(tx).refuseOwn(ch.Ref)); err != nil {
		return processlog.Row{}, naming(tx, err)
	}
	ch.Token = processlog.NewToken()
	before, err := c.store.Change(ctx, tx, watch != nil && watch.FullyWatched(), ch)
	watch = asked.end(watch)
	if err = asked.or(err); err != nil {
		return before, naming(tx, err)
	}
	if watch != nil {
		watch.OnEnd(func(outcome txwatch.Outcome) {
			if outcome == txwatch.Committed {
				c.engine.Changed(before, ch)
			}
		})
	} else {
		c.engine.ChangedUnseen(before, ch)
	}
	return before, nil
}

// Resolve tells whether a transaction that recorded under ref happened, after ErrCommitUnknown. It waits for one in
// flight, so ErrNotFound means: rolled back, for good. On Galera ask the node that got the COMMIT, or, once that is
// gone, any.
func (c *Compensator) Resolve(ctx context.Context, ref Ref) (*Entry, error) {
	row, err := c.store.Resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	return c.entry(&row), nil
}

// AcceptLoss lets work go on after ErrHistoryLost. All processes find it in the audit table with their next round. It
// returns what this one remembers and the database has lost; the others log theirs. It covers no later loss.
func (c *Compensator) AcceptLoss(ctx context.Context, by ByHand) ([]LostEntry, error) {
	if err := validateByHand(by); err != nil {
		return nil, err
	}
	if c.closed() {
		return nil, ErrClosed
	}
	return c.engine.AcceptLoss(ctx, by)
}

// EraseResult tells what Erase found.
type EraseResult struct {
	WasAlready bool // it was erased before, and nothing has changed
}

// Erase blanks the content, headers, user name and last error of an entry that has ended, a dead one too, and reasons and
// errors in its earlier audit records. Ids, which must hold no personal data, state, times and who did what stay, and the
// idempotent id still guards. It cannot be requeued: a *StateError with Erased. One that has not ended: a *StateError
// without. ErrNotFound, ErrBusy. What it cannot reach is in docs/operations.md.
func (c *Compensator) Erase(ctx context.Context, ref Ref, by ByHand) (EraseResult, error) {
	if err := validateByHand(by); err != nil {
		return EraseResult{}, err
	}
	before, err := c.change(ctx, processlog.Change{Ref: ref, Action: ActionErase, Actor: by.Actor, Reason: by.Reason})
	return EraseResult{WasAlready: err == nil && before.Erased}, err
}
