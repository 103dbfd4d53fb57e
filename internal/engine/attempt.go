package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Attempt is one run of a handler on one entry, or the entry's share of a batch.
type Attempt struct {
	Row   processlog.Row
	token int64 // of the queue lease it was claimed with; 0: none

	Type *Type
	slot *sharedSlot // its batch's; nil: its own
	// What one call of the handler has. An entry of a broken batch has another: written under holdings.mu, and read under it
	// but by who runs the attempt.
	ctx     context.Context // kept to ask why it ended. nil when none is called: the entry is dead-lettered
	cancel  context.CancelCauseFunc
	started time.Time

	lateBatch bool // its batch timed out, and it runs alone; no other goroutine has it then

	leaseEnd time.Time   // by our clock, which no write depends on; guarded by holdings.mu once running
	stuck    bool        // reported; guarded by holdings.mu
	anew     bool        // its batch has returned, and its lease is asked for anew; guarded by holdings.mu
	returned atomic.Bool // its handler has: from then on what it reports comes before all that is counted against its entry
	lapsed   bool        // the row has moved on, so that there is nothing to renew; guarded by holdings.mu
	gone     bool        // the entry is this process's no more; guarded by holdings.mu

	unrenewed  int       // how many times the database has refused to renew the lease; guarded by holdings.mu
	renewAfter time.Time // not asked for again before, since the database refuses it; guarded by holdings.mu

	calls uint32 // number of handler calls that have begun for it; guarded by holdings.mu
}

// sharedSlot is one that several attempts hold.
type sharedSlot struct{ left atomic.Int32 } // how many are to end before it is free

// freesSlot reports whether the slot is free with the end of this attempt.
func (a *Attempt) freesSlot() bool { return a.slot == nil || a.slot.left.Add(-1) == 0 }

// holding is what a process can hold one of: an entry within one epoch. A person's Requeue begins another.
type holding struct {
	id    processlog.ID
	epoch uint32
}

func (a *Attempt) holding() holding { return holding{a.Row.ID, a.Row.Epoch} }

func (a *Attempt) compensating() bool { return a.Row.State == processlog.Compensating }

// batched reports whether the attempt is one of a batch's, be it the only one.
func (a *Attempt) batched() bool { return a.Type.RunBatch != nil && !a.compensating() }

// stuckLocked reports whether a handler is stuck that has not returned since.
func (a *Attempt) stuckLocked() bool { return a.stuck && !a.anew && !a.returned.Load() }

// endLocked ends the attempt of an entry that is this process's no more. A context that has timed out does not tell.
func (a *Attempt) endLocked(cause error) {
	a.gone = true
	a.cancel(cause)
}

// loseLocked deals with a lease that has gone.
func (a *Attempt) loseLocked() {
	if a.returned.Load() {
		a.lapsed = true // its outcome is being stored, or will be found out of date; until then it is held
	} else {
		a.endLocked(processlog.ErrLeaseLost)
	}
}

// left tells the admissions that the entry can kill this process no more.
func (a *Attempt) left(why Leaving) { a.Type.left(&a.Row, LostLeases(&a.Row), why) }

func (a *Attempt) event(err error) observe.AttemptEvent {
	return observe.AttemptEvent{
		Context: a.ctx, ID: a.Row.ID, IdempotencyKey: a.Row.IdempotencyKey, BusinessType: a.Row.BusinessType, BusinessID: a.Row.BusinessID,
		Attempt: a.Row.Attempt(), Compensation: a.compensating(), Late: -a.Row.DueIn, Duration: time.Since(a.started), Err: usererr.Original(err),
	}
}
