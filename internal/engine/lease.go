package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/internal/refusals"
	"github.com/compensator-go/compensator/internal/sleep"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// holdings keeps the attempts that this process holds: from before the handler is called until the outcome is stored or
// dropped. Within one epoch a process holds an entry at most once.
type holdings struct {
	mu           sync.Mutex // guards the fields below
	held         map[holdingKey]*Attempt
	handlers     int           // number of held attempts whose handler has not returned
	handlersDone chan struct{} // closed when no handler runs; nil unless whenIdle waits for that

	firstHeld chan struct{} // wakes Engine.Renew when this process held no attempt and now holds one; the capacity is 1
}

func newHoldings() *holdings {
	return &holdings{held: make(map[holdingKey]*Attempt), firstHeld: make(chan struct{}, 1)}
}

// leaseEndedLocked reports whether the lease has ended by one of the two clocks of this process. While the machine is
// suspended, the monotonic clock stands still and the wall clock goes on. While the wall clock is set back, the
// monotonic clock goes on. The caller holds holdings.mu, or the attempt does not run yet.
func (a *Attempt) leaseEndedLocked(now time.Time) bool {
	return !now.Before(a.leaseEnd) || !now.Round(0).Before(a.leaseEnd.Round(0)) // Round(0) strips the monotonic clock.
}

// admit adds the attempts that may start to the map h.held, and returns them as admitted. The result late has the
// attempts that may not start, for one of these reasons:
//   - Run is stopping.
//   - This process already holds an attempt of the same entry.
//   - The lease has ended, for example because this process or its machine stood still.
func (h *holdings) admit(run context.Context, attempts []*Attempt) (admitted, late []*Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	admitted = attempts[:0]
	now := time.Now()
	for _, a := range attempts {
		// h.mu is locked during the checks, the change of h.held and the count of handlers. So if two claims bring the
		// same entry, only one attempt is admitted. And Drain waits for every handler that begins before the context of
		// Run ends. See promises G15 and G16.
		if run.Err() != nil || h.held[a.holdingKey()] != nil || a.leaseEndedLocked(now) {
			a.endCall()
			late = append(late, a)
			continue
		}
		if len(h.held) == 0 {
			select {
			case h.firstHeld <- struct{}{}:
			default:
			}
		}
		h.held[a.holdingKey()] = a
		h.handlers++
		admitted = append(admitted, a)
	}
	return admitted, late
}

func (h *holdings) beginCall(a *Attempt, ctx context.Context, cancel context.CancelCauseFunc, timeout *callTimeout) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a.call = call{ctx: ctx, cancel: cancel, timeout: timeout, startedAt: time.Now(), number: a.number + 1}
}

func (h *holdings) lossOf(a *Attempt) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.obsolete == nil && a.leaseEndedLocked(time.Now()) {
		return processlog.ErrLeaseLost // RenewLapsed could not renew the lease.
	}
	return a.obsolete
}

// HeldAttempt describes an attempt that this process holds.
type HeldAttempt struct {
	ID         processlog.ID
	Type       *Type
	StartedAt  time.Time // when the attempt began
	Stuck      bool      // whether the handler still runs after its timeout
	Returned   bool      // whether the handler has returned and its outcome is not stored yet
	LeaseEnded bool      // whether the lease has ended by the clock of this process. By then or soon after, the lease also ends in the database, which then reports the entry as due and free
	LeftBehind bool      // whether Run has stopped and the handler has not returned
}

// describeLocked returns the description of a held attempt. The caller holds holdings.mu.
func (a *Attempt) describeLocked() HeldAttempt {
	returned := a.returned.Load()
	return HeldAttempt{
		ID: a.Row.ID, Type: a.Type, StartedAt: a.startedAt, Stuck: a.isStuckLocked(), Returned: returned,
		LeaseEnded: a.leaseEndedLocked(time.Now()), LeftBehind: !returned && errors.Is(context.Cause(a.ctx), processlog.ErrStopping),
	}
}

// HeldAttempt returns the attempt that holds the row's entry in the row's epoch. held is false if this process does not
// hold the entry.
func (h *holdings) HeldAttempt(row *processlog.Row) (described HeldAttempt, held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.held[holdingKey{row.ID, row.Epoch}]
	if a == nil {
		return described, false
	}
	return a.describeLocked(), true
}

// Held returns the held attempts for which matches returns true, in the order of their ids. The function matches must
// not block.
func (h *holdings) Held(matches func(HeldAttempt) bool) []HeldAttempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []HeldAttempt
	for _, a := range h.held {
		if described := a.describeLocked(); matches(described) {
			list = append(list, described)
		}
	}
	slices.SortFunc(list, func(a, b HeldAttempt) int { return a.ID.Compare(b.ID) })
	return list
}

// HeldWithEndedLease returns the entries of a type that this process holds although their leases have ended, by the
// clock of this process.
func (h *holdings) HeldWithEndedLease(t *Type) map[processlog.ID]bool {
	ids := make(map[processlog.ID]bool)
	for _, a := range h.Held(func(a HeldAttempt) bool { return a.Type == t && a.LeaseEnded }) {
		ids[a.ID] = true
	}
	return ids
}

func (h *holdings) running(matches func(HeldAttempt) bool) (list []processlog.StuckAttempt) {
	for _, a := range h.Held(matches) {
		list = append(list, processlog.StuckAttempt{ID: a.ID, BusinessType: a.Type.Name, Running: time.Since(a.StartedAt)})
	}
	return list
}

// Stuck lists the handlers that still run after their timeout.
func (h *holdings) Stuck() []processlog.StuckAttempt {
	return h.running(func(a HeldAttempt) bool { return a.Stuck || a.LeftBehind })
}

// forget ends the holding of an attempt. Call it only when the outcome of the attempt is stored or dropped.
func (e *Engine) forget(a *Attempt) {
	e.holdings.remove(a)
	e.Refusals.Accepted(refusals.Renewal, a.Type.Name, a.Row.ID) // If the database has refused to renew this lease, forget the refusal, because the lease needs no renewal any more.
	a.suspectDone(OutcomeDecided)
}

func (h *holdings) remove(a *Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// The attempt a may be missing from h.held: an attempt that only dead-letters its entry is never added. Then h.held
	// may have another attempt of the same entry under this key. Do not delete that attempt.
	if h.held[a.holdingKey()] == a {
		delete(h.held, a.holdingKey())
	}
}

func (h *holdings) handlerReturned() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handlers--
	if h.handlers == 0 && h.handlersDone != nil {
		close(h.handlersDone)
		h.handlersDone = nil
	}
}

func (h *holdings) awaitIdle(timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-h.whenIdle():
		return true
	case <-timer.C:
		return false
	}
}

func (h *holdings) whenIdle() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.handlers == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if h.handlersDone == nil {
		h.handlersDone = make(chan struct{})
	}
	return h.handlersDone
}

// cancel ends the contexts of the attempts of an entry after a change of the entry, because the change has made these
// attempts obsolete. The parameter before holds the entry's row as it was just before the change. cancel does not end
// an attempt with a newer version than this row, because this attempt was claimed after the change. See promise G7.
func (h *holdings) cancel(before *processlog.Row, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.held {
		// Look in every epoch: after a manual Requeue a handler of the previous epoch may still run.
		if a.Row.ID == before.ID && a.Row.Version <= before.Version {
			a.makeObsoleteLocked(cause)
		}
	}
}

const stuckAfter = time.Second

// Renew renews leases until ctx ends. Renew does not renew the lease of a stuck handler, because such a handler could
// then hold its entry forever.
func (e *Engine) Renew(ctx context.Context) {
	startedAt, interval := time.Now(), e.types.renewInterval()
	roundBegan, idle := startedAt, false
	for {
		// If the process holds no attempt, no lease needs a renewal. Sleep until the process holds an attempt again.
		if idle {
			select {
			case <-ctx.Done():
			case <-e.holdings.firstHeld:
			}
			roundBegan = time.Now()
		}
		// The rounds begin at multiples of the interval after startedAt.
		if !sleep.For(ctx, time.Until(roundBegan)+interval-roundBegan.Sub(startedAt)%interval) {
			return
		}
		roundBegan = time.Now()
		var due grouped.Groups[time.Duration, *Attempt]
		due, idle = e.needRenewal()
		if len(due.Order) == 0 {
			e.Problems.Passed(problemRenew, "") // No lease needs a renewal now. If an earlier renewal failed, the lease or the attempt for which it was has ended, and so has the problem.
		}
		for _, lease := range due.Order {
			if ctx.Err() != nil {
				return
			}
			e.renewAll(lease, due.Groups[lease])
		}
	}
}

// stuckCall describes a handler call that is stuck. The fields call and event are copied while holdings.mu is locked,
// because the attempt may change later.
type stuckCall struct {
	*Attempt
	call  uint32
	event observe.AttemptEvent
}

// needRenewal returns the attempts that have used a third of their lease, grouped by lease length and sorted by id. It
// also reports the handlers that have become stuck. The result idle says that this process holds no attempt.
func (e *Engine) needRenewal() (due grouped.Groups[time.Duration, *Attempt], idle bool) {
	renewals, stuck, idle := e.holdings.examine()
	// A stuck call may be shared by several attempts, and the circuit breaker uses only the first report of the call.
	// Report in the order of the ids, so that the first report is always about the entry with the lowest id.
	slices.SortFunc(stuck, func(a, b stuckCall) int { return compareAttempts(a.Attempt, b.Attempt) })
	for _, s := range stuck {
		for _, admission := range s.Type.admissions {
			admission.Stuck(s.Attempt, s.call)
		}
		// Let other suspects run now. This entry has not crashed the process so far, and its handler may never return.
		s.suspectDone(NotRun)
		e.Log.Error("compensator: handler runs on after its timeout", "entry", s.event.ID, "type", s.event.BusinessType, "attempt", s.event.Attempt)
		NotifyObserver(e.Base, e.Observer.Stuck, s.event)
	}
	renewals = slices.DeleteFunc(renewals, func(a *Attempt) bool { return e.Refusals.IsPaused(refusals.Renewal, a.Type.Name, a.Row.ID) })
	return grouped.By(renewals, func(a *Attempt) time.Duration { return a.Type.Lease }), idle
}

func (h *holdings) examine() (renewals []*Attempt, stuck []stuckCall, idle bool) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.held {
		lease := a.Type.Lease
		switch {
		case a.lostAfterReturn, a.renewing && !a.returned.Load(): // The lease is lost, or RenewLapsed is renewing the lease.
		case !a.returned.Load() && now.Sub(a.startedAt) > a.Type.Timeout+stuckAfter:
			if !a.stuck {
				a.stuck = true
				stuck = append(stuck, stuckCall{a, a.number, a.Event(nil)})
			}
		case !a.returned.Load() && now.After(a.leaseEnd):
			a.makeObsoleteLocked(processlog.ErrLeaseLost) // No renewal has succeeded in time, so another process may have the entry.
		// This case also covers attempts whose handler has returned. While their outcome waits to be stored, the lease
		// keeps other processes from running the entry.
		//
		// The second condition is true even if only the wall clock says that the lease has ended. Somebody may have set
		// this clock, and the database then renews the lease. If another process has the entry, the database reports
		// the lease as lost.
		case a.leaseEnd.Sub(now) < lease*2/3, a.leaseEndedLocked(now):
			renewals = append(renewals, a)
		}
	}
	return newestAttempts(renewals), stuck, len(h.held) == 0
}

// compareAttempts compares attempts by id. Among attempts of one entry, the last claimed comes first.
func compareAttempts(a, b *Attempt) int {
	return cmp.Or(a.Row.ID.Compare(b.Row.ID), cmp.Compare(b.Row.Version, a.Row.Version))
}

// newestAttempts sorts attempts by id and keeps only the last claimed attempt of each entry. Store.Renew reports a lost
// lease by the id of the entry alone, so one call must not name two attempts of one entry.
func newestAttempts(due []*Attempt) []*Attempt {
	slices.SortFunc(due, compareAttempts)
	kept := due[:0]
	for _, a := range due {
		if n := len(kept); n > 0 && kept[n-1].Row.ID == a.Row.ID {
			a.loseLeaseLocked()
		} else {
			kept = append(kept, a)
		}
	}
	return kept
}

// renewAll renews the leases of the given attempts with one statement. It also works after the end of Run's context.
// Some outcomes may not be stored yet at that time, and an entry needs its lease until its outcome is stored. See
// promises G8 and G15.
func (e *Engine) renewAll(lease time.Duration, attempts []*Attempt) {
	held := make([]processlog.Held, len(attempts))
	for i, a := range attempts {
		held[i] = processlog.Held{ID: a.Row.ID, Version: a.Row.Version}
	}
	// The engine renews a lease when a third of its length has passed. The statement may take the second third. Then
	// the last third is left for another try.
	ctx, cancel := context.WithTimeout(e.Work, min(lease/3, StatementTimeout))
	defer cancel()
	// Read the clock before the statement is sent. The lease begins in the database, before the answer arrives here. If
	// this process counted the lease from the arrival of the answer, it would expect the end of the lease too late. See
	// promise G16.
	sentAt := time.Now()
	answer, err := e.Store.Renew(ctx, held, lease)
	e.NoteResult(problemRenew, err)
	if err != nil {
		return // The next round tries again, or finds that the lease has ended.
	}
	failpoint.Reach(failpoint.LeaseRenewed)
	e.noteRefused(refusals.Renewal, sentAt, len(attempts), func(i int) (*Attempt, error) {
		id := attempts[i].Row.ID
		err := refusals.Of(answer.Refused, id)
		// The database has accepted the renewal if the row is neither refused nor busy. A busy row was locked, so the
		// database has skipped the row without an answer.
		if err == nil && !slices.Contains(answer.Busy, id) {
			e.Refusals.Accepted(refusals.Renewal, attempts[i].Type.Name, id)
		}
		return attempts[i], err
	})
	e.holdings.renewed(attempts, answer, sentAt.Add(lease))
}

func (h *holdings) renewed(attempts []*Attempt, answer processlog.Unrenewed, leaseEnd time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range attempts {
		switch {
		case slices.Contains(answer.Lost, a.Row.ID):
			a.loseLeaseLocked()
		// The lease was renewed, because the row is neither busy nor refused. Any other lease keeps its old end.
		case !slices.Contains(answer.Busy, a.Row.ID) && !refusals.Has(answer.Refused, a.Row.ID):
			a.leaseEnd = leaseEnd
		}
	}
}

// RenewLapsed renews the leases that ended while a shared handler call ran. The call has returned no verdicts, so the
// engine then runs each entry of the call alone. If another process has claimed an entry in the meantime,
// SecondCallError returns an error for the entry's attempt.
func (e *Engine) RenewLapsed(t *Type, batch []*Attempt) {
	if lapsed := e.holdings.markLapsed(batch); len(lapsed) > 0 && !e.Stopping() {
		e.renewAll(t.Lease, lapsed)
	}
}

// markLapsed returns the attempts of batch whose leases have ended. For these attempts, it sets the flag in the field
// renewing, so that Engine.Renew skips them.
func (h *holdings) markLapsed(batch []*Attempt) (lapsed []*Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, a := range batch {
		if a.renewing = a.leaseEndedLocked(now); a.renewing {
			lapsed = append(lapsed, a)
		}
	}
	return lapsed
}
