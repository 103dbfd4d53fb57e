package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Attempt is the work on one entry under one lease: a handler call, or the entry's part of a shared call. After a shared
// call without a verdict, the attempt has a second call, in which the entry runs alone.
//
// This table says who sets the flags. All but returned are guarded by holdings.mu.
//
//	stuck       needRenewal sets it when the handler has exceeded its timeout by stuckAfter. prepare resets it.
//	renewing    lapsed sets it when a shared call returns after the lease has ended. prepare resets it.
//	returned    Finish sets it when the last handler call has returned. It is atomic and stays set.
//	lapsed      loseLocked sets it when the lease is lost after the handler has returned. It stays set.
//	gone        endLocked sets it when the lease is lost before the handler has returned, or when a change has made the
//	            attempt obsolete. It stays set.
//	unrenewed   renewAll counts the renewals that the database has refused.
//	renewAfter  renewAll sets it after each refused renewal. It has no effect once it has passed.
//	calls       prepare counts the handler calls.
//
// These combinations need an explanation. All others follow from the table:
//
//   - lapsed is set only if returned is set. The entry stays held until the database answers that the outcome is outdated.
//   - stuck may be set together with renewing or returned. Then the stuck call has returned, and stuckLocked is false.
//   - renewing is set only between two handler calls. If no second call may begin, returned is set next, and renewing
//     stays.
//   - gone may be set together with returned, in either order. A change may end an attempt whose outcome waits.
type Attempt struct {
	Row   processlog.Row
	token int64 // token of the queue lease that the claim used; 0 without a queue lease

	Type *Type
	slot *sharedSlot // slot shared with the other entries of a call; nil if the attempt has its own slot

	// The next four fields belong to one handler call. An entry of a broken batch gets new values for its second call.
	// They are written under holdings.mu. The goroutine that runs the attempt may read them without the lock.
	ctx     context.Context // kept to read its cause; nil if no handler is called, because the entry is dead-lettered
	cancel  context.CancelCauseFunc
	timeout *callTimeout
	started time.Time

	leaseEnd time.Time   // by the monotonic clock of this process, on which no write depends; guarded by holdings.mu once running
	stuck    bool        // the handler call was reported as stuck
	renewing bool        // the shared call has returned after the lease had ended, and RenewLapsed renews the lease
	returned atomic.Bool // the handler has returned; from then on its outcome takes precedence over a dead-lettering
	lapsed   bool        // the row has moved on, so no lease is left to renew
	gone     bool        // this process no longer owns the entry

	unrenewed  int       // number of times the database has refused to renew the lease
	renewAfter time.Time // earliest time of the next renewal after a refusal

	calls uint32 // number of handler calls that have begun for the attempt
}

// Context returns the context of the attempt's handler call.
func (a *Attempt) Context() context.Context { return a.ctx }

// Took returns how long ago the attempt's handler call began. It returns 0 if no call began.
func (a *Attempt) Took() time.Duration {
	if a.ctx == nil {
		return 0
	}
	return time.Since(a.started)
}

// endCall ends the context of the attempt's handler call.
func (a *Attempt) endCall() {
	a.cancel(nil)
	a.timeout.callEnded()
}

// freesSlot reports whether the end of this attempt frees its slot. Call it once, when the attempt ends.
func (a *Attempt) freesSlot() bool { return a.slot == nil || a.slot.left.Add(-1) == 0 }

// holding identifies an entry within one epoch. A process holds at most one attempt for each holding. A manual Requeue
// starts another epoch.
type holding struct {
	id    processlog.ID
	epoch uint32
}

func (a *Attempt) holding() holding { return holding{a.Row.ID, a.Row.Epoch} }

func (a *Attempt) compensating() bool { return a.Row.State == processlog.Compensating }

// stuckLocked reports whether the handler was found stuck and has not returned since.
func (a *Attempt) stuckLocked() bool { return a.stuck && !a.renewing && !a.returned.Load() }

// endLocked ends the attempt of an entry that this process no longer owns. The context does not always show this, because
// a context that has already timed out keeps that cause. So endLocked also sets gone.
func (a *Attempt) endLocked(cause error) {
	a.gone = true
	a.cancel(cause)
}

// loseLocked marks the attempt's lease as lost.
func (a *Attempt) loseLocked() {
	if a.returned.Load() {
		a.lapsed = true // The outcome is being stored, or the database will find it outdated. The entry stays held until then.
	} else {
		a.endLocked(processlog.ErrLeaseLost)
	}
}

// left notifies the admissions that the entry can no longer crash this process.
func (a *Attempt) left(why Leaving) { a.Type.left(&a.Row, LostLeases(&a.Row), why) }

// Event returns the event that describes the attempt to an observer. err is the handler's error, if it has returned.
func (a *Attempt) Event(err error) observe.AttemptEvent {
	return observe.AttemptEvent{
		Context: a.ctx, ID: a.Row.ID, IdempotencyKey: a.Row.IdempotencyKey, BusinessType: a.Row.BusinessType, BusinessID: a.Row.BusinessID,
		Attempt: a.Row.Attempt(), Compensation: a.compensating(), Late: -a.Row.DueIn, Duration: time.Since(a.started), Err: usererr.Original(err),
	}
}
