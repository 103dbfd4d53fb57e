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
//	stuck            needRenewal sets it when the handler has exceeded its timeout by stuckAfter. prepare resets it.
//	renewing         markLapsed sets it when a shared call returns after the lease has ended. prepare resets it.
//	returned         Finish sets it when the last handler call has returned. It is atomic and stays set.
//	lostAfterReturn  loseLeaseLocked sets it when the lease is lost after the handler has returned. It stays set.
//	obsolete         makeObsoleteLocked sets it when the lease is lost before the handler has returned, or when a change
//	                 of the entry has ended the attempt. It stays set.
//	refusedRenewals  renewAll counts the renewals that the database has refused.
//	renewAfter       renewAll sets it after each refused renewal. It has no effect once this time has passed.
//	callCount        prepare counts the handler calls.
//
// These combinations need an explanation. All others follow from the table:
//
//   - lostAfterReturn is set only if returned is set. The process keeps holding the entry until the database answers that
//     the outcome is outdated.
//   - stuck may be set together with renewing or returned. Then the stuck call has returned, and isStuckLocked is false.
//   - renewing is set only between two handler calls. If no second call may begin, returned is set next, and renewing
//     stays.
//   - obsolete may be set together with returned, in either order. A change may end an attempt whose outcome waits.
type Attempt struct {
	Row        processlog.Row
	queueToken int64 // token of the queue lease that the claim used; 0 without a queue lease

	Type       *Type
	sharedSlot *sharedSlot // slot shared with the other entries of a call; nil if the attempt has its own slot

	// The next four fields belong to one handler call. An entry of a broken batch gets new values for its second call.
	// They are written under holdings.mu. The goroutine that runs the attempt may read them without the lock.
	ctx       context.Context // kept to read its cause; nil if no handler is called, because the entry is dead-lettered
	cancel    context.CancelCauseFunc
	timeout   *callTimeout
	startedAt time.Time

	leaseEnd        time.Time   // by the monotonic clock of this process, on which no write depends; guarded by holdings.mu once running
	stuck           bool        // the handler call was reported as stuck
	renewing        bool        // the shared call has returned after the lease had ended, and RenewLapsed renews the lease
	returned        atomic.Bool // the handler has returned; from then on its outcome takes precedence over a dead-lettering
	lostAfterReturn bool        // the row has moved on, so no lease is left to renew
	obsolete        bool        // this process no longer owns the entry

	refusedRenewals int       // number of times the database has refused to renew the lease
	renewAfter      time.Time // earliest time of the next renewal after a refusal

	callCount uint32 // number of handler calls that have begun for the attempt
}

// Context returns the context of the attempt's handler call.
func (a *Attempt) Context() context.Context { return a.ctx }

// Elapsed returns how long ago the attempt's handler call began. It returns 0 if no call began.
func (a *Attempt) Elapsed() time.Duration {
	if a.ctx == nil {
		return 0
	}
	return time.Since(a.startedAt)
}

// endCall ends the context of the attempt's handler call.
func (a *Attempt) endCall() {
	a.cancel(nil)
	a.timeout.callEnded()
}

// freesSlot reports whether the end of this attempt frees its slot. Call it once, when the attempt ends.
func (a *Attempt) freesSlot() bool {
	return a.sharedSlot == nil || a.sharedSlot.attemptsLeft.Add(-1) == 0
}

// holdingKey identifies an entry within one epoch. A process holds at most one attempt for each key. A manual Requeue
// starts another epoch.
type holdingKey struct {
	id    processlog.ID
	epoch uint32
}

func (a *Attempt) holdingKey() holdingKey { return holdingKey{a.Row.ID, a.Row.Epoch} }

func (a *Attempt) compensating() bool { return a.Row.State == processlog.Compensating }

// isStuckLocked reports whether the handler was found stuck and has not returned since.
func (a *Attempt) isStuckLocked() bool { return a.stuck && !a.renewing && !a.returned.Load() }

// makeObsoleteLocked ends the attempt of an entry that this process no longer owns. The context does not always show this, because
// a context that has already timed out keeps that cause. So makeObsoleteLocked also sets obsolete.
func (a *Attempt) makeObsoleteLocked(cause error) {
	a.obsolete = true
	a.cancel(cause)
}

// loseLeaseLocked marks the attempt's lease as lost.
func (a *Attempt) loseLeaseLocked() {
	if a.returned.Load() {
		a.lostAfterReturn = true // The outcome is being stored, or the database will find it outdated. The entry stays held until then.
	} else {
		a.makeObsoleteLocked(processlog.ErrLeaseLost)
	}
}

// suspectDone notifies the admissions that the entry can no longer crash this process.
func (a *Attempt) suspectDone(why SuspectEnd) { a.Type.suspectDone(&a.Row, LostLeases(&a.Row), why) }

// Event returns the event that describes the attempt to an observer. err is the handler's error, if it has returned.
func (a *Attempt) Event(err error) observe.AttemptEvent {
	return observe.AttemptEvent{
		Context: a.ctx, ID: a.Row.ID, IdempotencyKey: a.Row.IdempotencyKey, BusinessType: a.Row.BusinessType, BusinessID: a.Row.BusinessID,
		Attempt: a.Row.Attempt(), Compensation: a.compensating(), Late: -a.Row.DueIn, Duration: time.Since(a.startedAt), Err: usererr.Original(err),
	}
}
