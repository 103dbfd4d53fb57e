package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Grouping has one call of a type's handler take several entries. A feature attaches it to the type at registration. Without
// it each entry has a call of its own.
//
// The claim schedule calls Wait, Due, Look and More while it holds its mutex. All methods return at once.
type Grouping interface {
	// Seats returns how many entries one call takes at most.
	Seats() int

	// Company returns with which entries an entry may share a call: with those of the same company. lost is how many leases in
	// a row the entry has lost.
	Company(state processlog.State, lost int) Company

	// Start begins one call for several attempts in a goroutine of its own. The goroutine ends each attempt with Engine.Finish
	// or Engine.RunAlone.
	Start(batch []*Attempt)

	// Wait returns how long a due entry may stay unclaimed to share its call with others. It always returns the same value. If
	// it returns 0, Due, Look and More are not called.
	Wait() time.Duration

	// Due is called for each entry that is reported as due now. It returns true if the scanner must look at the type now.
	Due() bool

	// Look is called while entries of the type wait and a claim could begin. It returns when to call it again, or a function
	// that finds out in the database how much longer the entries may wait: Never if none is due. The engine calls that function in a
	// goroutine, and calls Look again only after it has returned.
	Look(now time.Time) (look func() time.Duration, next time.Time)

	// More is called when a claim took as many entries as it asked for. It allows a look at once.
	More()
}

// Company says which other entries share an entry's handler call.
type Company int

const (
	Alone        Company = iota
	WithOthers           // entries that have lost no lease
	WithSuspects         // entries that have lost leases
	companies
)

// Group attaches a grouping to the type. Call it at registration.
func (t *Type) Group(g Grouping) { t.grouping = g }

// Grouped reports whether one call of the handler may take several entries.
func (t *Type) Grouped() bool { return t.grouping != nil }

// Seats returns how many entries one call of the handler takes at most.
func (t *Type) Seats() int {
	if t.grouping == nil {
		return 1
	}
	return t.grouping.Seats()
}

func (t *Type) company(state processlog.State, lost int) Company {
	if t.grouping == nil {
		return Alone
	}
	return t.grouping.Company(state, lost)
}

// Wait returns how long a due entry may stay unclaimed to share its call with others.
func (t *Type) Wait() time.Duration {
	if t.grouping == nil {
		return 0
	}
	return t.grouping.Wait()
}

// callsFor returns how many calls n entries need if they share calls.
func (t *Type) callsFor(n int) int { return (n + t.Seats() - 1) / t.Seats() }

// fits returns how many entries one claim statement may lease for a number of calls. While an admission limits the
// type, each entry counts as a whole call.
func (t *Type) fits(calls int) int {
	calls = min(calls, processlog.MaxRows)
	if t.limited() {
		return calls
	}
	return min(calls*t.Seats(), processlog.MaxRows)
}

// calls returns how many calls the claimed rows need.
func (t *Type) calls(rows []processlog.Row) int {
	return t.callsOf(len(rows), func(i int) *processlog.Row { return &rows[i] })
}

func (t *Type) callsOf(n int, row func(i int) *processlog.Row) int {
	var entries [companies]int
	for i := range n {
		entries[t.company(row(i).State, LostLeases(row(i)))]++
	}
	return entries[Alone] + t.callsFor(entries[WithOthers]) + t.callsFor(entries[WithSuspects])
}

// sharedSlot is the slot of a call that several attempts share.
type sharedSlot struct{ left atomic.Int32 } // number of attempts that must end before the slot is free

// ShareSlot has the attempts of one call share its slot. The slot is free once n of them have ended.
func ShareSlot(batch []*Attempt, n int) {
	slot := new(sharedSlot)
	slot.left.Store(int32(n))
	for _, a := range batch {
		a.slot = slot
	}
}

// HandlerContext returns the context of a handler call for several entries. It carries no entry's values: with the values of one
// tenant's entry, the handler would work for all tenants as that tenant.
func (e *Engine) HandlerContext(t *Type) (context.Context, context.CancelCauseFunc) {
	return e.dispatcher.handlerContext(t, nil)
}

// Stopping reports whether Run's context has ended.
func (e *Engine) Stopping() bool { return e.dispatcher.stopping() }

// Finish ends an attempt with the result of its call.
func (e *Engine) Finish(a *Attempt, r Result) { e.dispatcher.finish(a, r) }

// RunAlone begins another call of the handler for an attempt, in which it shares nothing. The entry is still held and its
// handler counted as running, so a drain waits for this call too.
func (e *Engine) RunAlone(a *Attempt) {
	a.cancel(nil)
	e.dispatcher.prepare(a)
	go e.dispatcher.attempt(a)
}

// Over returns why no handler may be called for an attempt again, or nil.
func (e *Engine) Over(a *Attempt) error {
	stopping := e.Stopping()
	e.holdings.mu.Lock()
	defer e.holdings.mu.Unlock()
	switch cause := context.Cause(a.ctx); {
	case stopping, errors.Is(cause, processlog.ErrStopping):
		return processlog.ErrStopping
	case !a.gone && time.Now().After(a.leaseEnd):
		return processlog.ErrLeaseLost // RenewLapsed did not get a new lease.
	case !a.gone:
		return nil
	// The context keeps its first cause, the timeout. It does not show a lost lease or a cancellation that came later.
	case errors.Is(cause, processlog.ErrTimeout):
		return processlog.ErrLeaseLost // Use this error for a cancelled entry too.
	default:
		return cause
	}
}

// RenewLapsed renews the leases of attempts that ended during the call that the attempts shared. A stuck call may return so late
// that other processes have run its entries. Their leases cannot be renewed.
func (e *Engine) RenewLapsed(t *Type, batch []*Attempt) {
	if lapsed := e.holdings.lapsed(batch); len(lapsed) > 0 && !e.Stopping() {
		e.renewer.renewAll(t.Lease, lapsed)
	}
}

// HeldFree returns the entries of a type that this process holds and whose leases have ended by its clock. The database reports
// them as due and free.
func (e *Engine) HeldFree(t *Type) map[processlog.ID]bool { return e.holdings.expired(t) }

// lapsed returns the attempts of batch whose leases have ended. These attempts no longer count as stuck in their shared call.
func (h *holdings) lapsed(batch []*Attempt) (lapsed []*Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, a := range batch {
		if a.anew = now.After(a.leaseEnd); a.anew {
			lapsed = append(lapsed, a)
		}
	}
	return lapsed
}
