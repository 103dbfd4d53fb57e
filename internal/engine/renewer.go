package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/internal/refusals"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// stuckAfter is how long a handler may run after its timeout before it counts as stuck.
const stuckAfter = time.Second

// renewer renews leases and detects stuck handlers.
type renewer struct {
	*Base
	types    *types
	holdings *holdings
	refusals *refusals.List
}

// run renews leases until ctx ends. It renews them for running attempts, and for attempts whose outcome waits to be
// stored. It does not renew the lease of a stuck handler, which could otherwise hold its entry for ever.
func (r *renewer) run(ctx context.Context) {
	began, interval := time.Now(), r.types.renewInterval()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	idle := false
	for ctx.Err() == nil { // Check ctx itself, because a tick may arrive together with the end of ctx.
		if idle { // Without held attempts, do not wake the process for each tick.
			ticker.Stop()
			if !r.sleep(ctx, began, interval) {
				return
			}
			ticker.Reset(interval)
		} else {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
		due := r.needRenewal()
		if len(due.Order) == 0 {
			r.Problems.Passed(problemRenew, "") // No lease is left whose renewal failed: its attempt or the lease itself has ended.
		}
		for _, lease := range due.Order {
			if ctx.Err() != nil {
				return
			}
			r.renewAll(lease, due.Groups[lease])
		}
		idle = len(due.Order) == 0 && r.holdings.none()
	}
}

// sleep waits until an attempt is held, and then for the next round. Rounds come at multiples of interval, counted from
// began, however long nothing was held. sleep returns false when ctx has ended.
func (r *renewer) sleep(ctx context.Context, began time.Time, interval time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-r.holdings.begun:
		return Rest(ctx, interval-time.Since(began)%interval)
	}
}

// stuckCall is a handler call that was found stuck. Its fields are copied under the lock under which it was found. By
// the time it is reported, the batch may have returned and the entry may have begun another call.
type stuckCall struct {
	*Attempt
	call  uint32
	event observe.AttemptEvent
}

// needRenewal returns the attempts that have used a third of their lease, grouped by lease length and sorted by id. It
// also reports stuck handlers.
func (r *renewer) needRenewal() grouped.Groups[time.Duration, *Attempt] {
	now := time.Now()
	var due []*Attempt
	var stuck []stuckCall
	r.holdings.mu.Lock()
	for _, a := range r.holdings.held {
		lease := a.Type.Lease
		switch {
		case a.lapsed, a.anew && !a.returned.Load(): // Nothing to renew, or RenewLapsed is renewing it.
		case !a.returned.Load() && now.Sub(a.started) > a.Type.Timeout+stuckAfter:
			if !a.stuck {
				a.stuck = true
				stuck = append(stuck, stuckCall{a, a.calls, a.Event(nil)})
			}
		case !a.returned.Load() && now.After(a.leaseEnd):
			a.endLocked(processlog.ErrLeaseLost) // The database did not answer in time, so another process may have the entry.
		case now.Before(a.renewAfter): // The database has refused the renewal.
		case a.leaseEnd.Sub(now) < lease*2/3: // Renew also while the outcome waits for the database, so that no other process runs the entry.
			due = append(due, a)
		}
	}
	due = newest(due)
	r.holdings.mu.Unlock()
	// Report in this order: the breaker counts the call of a stuck batch for the batch's first entry, as it does when a
	// batch returns.
	slices.SortFunc(stuck, func(a, b stuckCall) int { return inOrder(a.Attempt, b.Attempt) })
	for _, s := range stuck {
		for _, admission := range s.Type.admissions {
			admission.Stuck(s.Attempt, s.call)
		}
		s.left(NotRun) // The entry has not crashed this process, and its handler may never return.
		r.Log.Error("compensator: handler runs on after its timeout", "entry", s.event.ID, "type", s.event.BusinessType, "attempt", s.event.Attempt)
		Tell(r.Base, r.Observer.Stuck, s.event)
	}
	return grouped.By(due, func(a *Attempt) time.Duration { return a.Type.Lease })
}

// inOrder compares attempts by id. Among attempts of one entry, the last claimed comes first.
func inOrder(a, b *Attempt) int {
	return cmp.Or(a.Row.ID.Compare(b.Row.ID), cmp.Compare(b.Row.Version, a.Row.Version))
}

// newest sorts attempts by id and keeps only the last claimed attempt of each entry. It marks the leases of the others
// as lost.
//
// An entry has several attempts if it was requeued manually while earlier ones ran on. The store reports lost leases by
// id, and such a report must not apply to the new attempt.
func newest(due []*Attempt) []*Attempt {
	slices.SortFunc(due, inOrder)
	kept := due[:0]
	for _, a := range due {
		if n := len(kept); n > 0 && kept[n-1].Row.ID == a.Row.ID {
			a.loseLocked()
		} else {
			kept = append(kept, a)
		}
	}
	return kept
}

// renewAll renews leases of one length. It ends attempts whose entries this process no longer owns. It works until
// Close, and not only until the end of Run, because outcomes may wait to be stored long after that (G8, G15).
func (r *renewer) renewAll(lease time.Duration, attempts []*Attempt) {
	held := make([]processlog.Held, len(attempts))
	for i, a := range attempts {
		held[i] = processlog.Held{ID: a.Row.ID, Version: a.Row.Version}
	}
	// A round renews leases with less than two thirds left. With a timeout of one third there is time for another try.
	ctx, cancel := context.WithTimeout(r.Work, min(lease/3, StatementTimeout))
	defer cancel()
	asked := time.Now() // Take the time before the statement, as a claim does (G16).
	left, err := r.Store.Renew(ctx, held, lease)
	r.Saw(problemRenew, err)
	if err != nil {
		return // The next round tries again, or finds that the lease has ended.
	}
	failpoint.Reach(failpoint.LeaseRenewed)
	r.noteRefused(attempts, left.Rejected)
	r.holdings.mu.Lock()
	defer r.holdings.mu.Unlock()
	for _, a := range attempts {
		switch {
		case slices.Contains(left.Lost, a.Row.ID):
			a.loseLocked()
		case refusals.Has(left.Rejected, a.Row.ID):
			a.unrenewed++
			a.renewAfter = time.Now().Add(refusals.Pause(a.unrenewed)) // The lease keeps its old end.
		case !slices.Contains(left.Busy, a.Row.ID): // A locked row's lease keeps its old end, and the next round tries again.
			a.leaseEnd = asked.Add(lease)
		}
	}
}

// noteRefused reports the leases that the database refuses to renew, and clears the refusals of the other attempts.
func (r *renewer) noteRefused(attempts []*Attempt, rejected []processlog.Refusal) {
	if len(rejected) == 0 && !r.refusals.Some() {
		return
	}
	byType := make(map[string][]processlog.Refusal)
	for _, a := range attempts {
		i := slices.IndexFunc(rejected, func(r processlog.Refusal) bool { return r.ID == a.Row.ID })
		if i < 0 {
			r.refusals.Taken(refusals.Renewal, a.Type.Name, a.Row.ID)
			continue
		}
		byType[a.Type.Name] = append(byType[a.Type.Name], rejected[i])
	}
	for name, list := range byType {
		r.refusals.Note(refusals.Renewal, name, list)
	}
}
