package compensator

import (
	"context"
	"time"

	"github.com/compensator-go/compensator/internal/txwatch"
	"github.com/compensator-go/compensator/processlog"
)

// CompleteResult tells what Complete found.
type CompleteResult struct {
	// WasRunning: an attempt held the entry. Its handler's context ends with ErrCancelled in this process,
	// and at its next renewal elsewhere; its outcome will be dropped, but what it did outside the database
	// stays done.
	WasRunning bool

	// WasDead: the entry waited for a person, and does no more. What its attempts did outside the database stays done.
	WasDead bool
}

// CancelResult tells what Cancel found.
type CancelResult struct {
	WasRunning bool // as in CompleteResult
	WasDead    bool // as in CompleteResult

	// WasAlready: it was cancelled before, and nothing has changed.
	WasAlready bool
}

// Complete records that somebody else finished the entry's work: it will not run again. An attempt under
// way is told to stop. A dead entry can still be completed, unless a compensation of it has begun.
//
// ErrAlreadySucceeded: the work was done before, and must not be done twice. That is a *StateError, as for any other state
// that cannot be completed; ErrNotFound; ErrBusy.
func (c *Compensator) Complete(ctx context.Context, ref Ref) (CompleteResult, error) {
	return completed(c.change(ctx, processlog.Change{Ref: ref, Action: ActionComplete}))
}

// CompleteTx is Complete as part of the caller's open transaction: it happens exactly if that commits.
func (c *Compensator) CompleteTx(ctx context.Context, tx Tx, ref Ref) (CompleteResult, error) {
	return completed(c.changeTx(ctx, tx, processlog.Change{Ref: ref, Action: ActionComplete}))
}

func completed(before processlog.Row, err error) (CompleteResult, error) {
	return CompleteResult{WasRunning: before.LeaseLeft > 0, WasDead: err == nil && before.State == Dead}, err
}

// Cancel records that the work is no longer wanted, dead entries as for Complete. *StateError: it has succeeded, or is in
// another state that cannot be cancelled; ErrNotFound; ErrBusy.
func (c *Compensator) Cancel(ctx context.Context, ref Ref) (CancelResult, error) {
	return cancelled(c.change(ctx, processlog.Change{Ref: ref, Action: ActionCancel}))
}

// CancelTx is Cancel as part of the caller's open transaction. Until that commits, an attempt may start; its
// success is then dropped if its handler is transactional or the cancellation commits first.
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

// CompleteTx is Compensator.CompleteTx for an entry of this type. The error for one of another is an
// *OtherTypeError, which changes nothing and leaves the transaction usable.
func (t *Type[T]) CompleteTx(ctx context.Context, tx Tx, ref Ref) (CompleteResult, error) {
	return completed(t.c.changeTx(ctx, tx, processlog.Change{Ref: ref, BusinessType: t.name, Action: ActionComplete}))
}

// CancelTx is Compensator.CancelTx for an entry of this type; see CompleteTx.
func (t *Type[T]) CancelTx(ctx context.Context, tx Tx, ref Ref) (CancelResult, error) {
	return cancelled(t.c.changeTx(ctx, tx, processlog.Change{Ref: ref, BusinessType: t.name, Action: ActionCancel}))
}

// Reschedule makes a pending or retrying entry due after delay from now, earlier or later than before. A
// failure of an attempt under way is then dropped, and the entry does not run again before the lease of that
// attempt has ended, which is renewed no more.
func (c *Compensator) Reschedule(ctx context.Context, ref Ref, delay time.Duration) error {
	if _, err := (Options{Delay: delay}).delay(); err != nil {
		return err
	}
	_, err := c.change(ctx, processlog.Change{Ref: ref, Action: ActionReschedule, Delay: delay})
	return err
}

// RescheduleTx is Reschedule as part of the caller's open transaction.
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

// RequeueOptions say how a requeued entry runs.
type RequeueOptions struct {
	ByHand
	Delay      time.Duration
	Compensate bool // run the compensation (again) instead of the handler
}

// Requeue starts an entry afresh, with a new epoch and all its attempts, from any state but pending and
// compensating. A result of the epoch before is never applied to the new one.
func (c *Compensator) Requeue(ctx context.Context, ref Ref, opts RequeueOptions) error {
	if err := validateByHand(opts.ByHand); err != nil {
		return err
	}
	if _, err := (Options{Delay: opts.Delay}).delay(); err != nil {
		return err
	}
	_, err := c.change(ctx, processlog.Change{Ref: ref, Action: ActionRequeue, Delay: opts.Delay, Compensate: opts.Compensate, Actor: opts.Actor, Reason: opts.Reason})
	return err
}

// SettleByHand records that a person has done what the entry was for: dead, retrying or compensating ones.
func (c *Compensator) SettleByHand(ctx context.Context, ref Ref, by ByHand) error {
	if err := validateByHand(by); err != nil {
		return err
	}
	_, err := c.change(ctx, processlog.Change{Ref: ref, Action: ActionSettleByHand, Actor: by.Actor, Reason: by.Reason})
	return err
}

// SettleByHandTx is SettleByHand as part of the caller's open transaction, its record in the audit table included.
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
	ch.Token = processlog.NewToken()
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
	watch, err := c.enlist(ctx, tx)
	if err != nil {
		return processlog.Row{}, err
	}
	ch.Token = processlog.NewToken()
	before, err := c.store.Change(ctx, tx, watch != nil && watch.FullyWatched(), ch)
	if err != nil {
		return before, err
	}
	if watch != nil {
		watch.OnEnd(func(outcome txwatch.Outcome) {
			if outcome == txwatch.Committed {
				c.engine.Changed(before, ch)
			}
		})
	}
	return before, nil
}

// Resolve tells whether a transaction that recorded under ref has happened, after a Commit whose outcome is
// unknown. It waits for a transaction still in flight, so ErrNotFound means: rolled back, for good. On Galera that holds
// on the node to which the Commit was sent, or once that node is gone: what is in flight on another is not seen.
func (c *Compensator) Resolve(ctx context.Context, ref Ref) (*Entry, error) {
	row, err := c.store.Resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	return c.entry(&row), nil
}

// AcceptLoss says that what the database has lost is known, and that work is to go on: see ErrHistoryLost. It is kept
// in the audit table (History of the zero EntryID), where every process that has stopped finds it with its next round.
// It returns what this process remembers and the database has lost; the others log theirs. A loss that comes later is not
// accepted by it.
func (c *Compensator) AcceptLoss(ctx context.Context, by ByHand) ([]LostEntry, error) {
	if err := validateByHand(by); err != nil {
		return nil, err
	}
	if c.closed() {
		return nil, ErrClosed
	}
	return c.engine.AcceptLoss(ctx, by)
}
