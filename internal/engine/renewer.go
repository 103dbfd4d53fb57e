package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// stuckAfter is how long a handler may take to return once its timeout has ended its context.
const stuckAfter = time.Second

// renewer keeps leases alive, and finds out which handlers are stuck.
type renewer struct {
	*Base
	types    *types
	holdings *holdings
	refusals *refusals
}

// run keeps the leases of running attempts, and of those whose outcome waits to be stored, alive until ctx
// ends. A handler past its timeout is renewed no more: one that never returns must not hold its entry for ever.
func (r *renewer) run(ctx context.Context) {
	began, interval := time.Now(), r.types.renewInterval()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	idle := false
	for ctx.Err() == nil { // asked for itself: a tick may have come during a long round, and the end, too
		if idle { // a process that runs nothing does not wake for it
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
			r.Problems.Passed(problemRenew, "") // of what failed nothing is left to renew: it has ended, or its lease has
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

// sleep waits until something is held, and then for the next round. Rounds stay at multiples of the interval, counted from began: when
// they come does not depend on how long nothing was held. It returns false when ctx has ended.
func (r *renewer) sleep(ctx context.Context, began time.Time, interval time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-r.holdings.begun:
		return Rest(ctx, interval-time.Since(began)%interval)
	}
}

// stuckCall is an attempt that was found stuck, and in which call. All of it is taken under the lock under which it was found:
// by the time it is told its batch may have returned, and the entry have a call of its own.
type stuckCall struct {
	*Attempt
	call  uint32
	event observe.AttemptEvent
}

// needRenewal finds the attempts with a third of their lease gone, by lease and in the order of their ids, and
// reports stuck ones.
func (r *renewer) needRenewal() grouped.Groups[time.Duration, *Attempt] {
	now := time.Now()
	var due []*Attempt
	var stuck []stuckCall
	r.holdings.mu.Lock()
	for _, a := range r.holdings.held {
		lease := a.Type.Lease
		switch {
		case a.lapsed, a.anew && !a.returned.Load(): // nothing to renew, or under way
		case !a.returned.Load() && now.Sub(a.started) > a.Type.Timeout+stuckAfter:
			if !a.stuck {
				a.stuck = true
				stuck = append(stuck, stuckCall{a, a.calls, a.event(nil)})
			}
		case !a.returned.Load() && now.After(a.leaseEnd):
			a.endLocked(processlog.ErrLeaseLost) // the database did not answer in time: somebody else may have it
		case now.Before(a.renewAfter): // the database has refused it
		case a.leaseEnd.Sub(now) < lease*2/3: // also while its outcome waits for the database: nobody else shall run it
			due = append(due, a)
		}
	}
	due = newest(due)
	r.holdings.mu.Unlock()
	// A breaker takes a hanging batch's call for its first entry's, as it does when that returns.
	slices.SortFunc(stuck, func(a, b stuckCall) int { return inOrder(a.Attempt, b.Attempt) })
	for _, s := range stuck {
		s.Type.stuck(s.Attempt, s.call)
		s.left(NotRun) // it has not killed the process, and may never return
		r.Log.Error("compensator: handler runs on after its timeout", "entry", s.event.ID, "type", s.event.BusinessType, "attempt", s.event.Attempt)
		Tell(r.Base, r.Observer.Stuck, s.event)
	}
	return grouped.By(due, func(a *Attempt) time.Duration { return a.Type.Lease })
}

// inOrder compares attempts by id, and of one entry the last claimed comes first.
func inOrder(a, b *Attempt) int {
	return cmp.Or(a.Row.ID.Compare(b.Row.ID), cmp.Compare(b.Row.Version, a.Row.Version))
}

// newest sorts attempts by id and keeps the last claimed of each entry. Where there are several, a person has
// requeued the entry while the others ran on: their leases have gone, and what the store tells of lost ones, by id, must
// not be taken for news of the new one.
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

// renewAll renews the leases of attempts of one length of lease, and ends those that are no longer this process's. It is
// bound to Close and not to Run: outcomes are waited for long after that (G8, G15).
func (r *renewer) renewAll(lease time.Duration, attempts []*Attempt) {
	held := make([]processlog.Held, len(attempts))
	for i, a := range attempts {
		held[i] = processlog.Held{ID: a.Row.ID, Version: a.Row.Version}
	}
	// A round asks when less than two thirds are left: where no answer comes there is time for another try.
	ctx, cancel := context.WithTimeout(r.Work, min(lease/3, StatementTimeout))
	defer cancel()
	asked := time.Now() // before the question, as a claim's (G16)
	left, err := r.Store.Renew(ctx, held, lease)
	r.Saw(problemRenew, err)
	if err != nil {
		return // the next round asks again, or finds that the lease has ended meanwhile
	}
	failpoint.Reach(failpoint.LeaseRenewed)
	r.noteRefused(attempts, left.Rejected)
	r.holdings.mu.Lock()
	defer r.holdings.mu.Unlock()
	for _, a := range attempts {
		switch {
		case slices.Contains(left.Lost, a.Row.ID):
			a.loseLocked()
		case refuses(left.Rejected, a.Row.ID):
			a.unrenewed++
			a.renewAfter = time.Now().Add(refusalPause(a.unrenewed)) // its lease ends when it did
		case !slices.Contains(left.Busy, a.Row.ID): // whose lease ends when it did, and is asked for again with the next round
			a.leaseEnd = asked.Add(lease)
		}
	}
}

func refuses(list []processlog.Refusal, id processlog.ID) bool {
	return slices.ContainsFunc(list, func(r processlog.Refusal) bool { return r.ID == id })
}

// noteRefused tells of the leases that the database refuses to renew, and forgets those that it no longer refuses.
func (r *renewer) noteRefused(attempts []*Attempt, rejected []processlog.Refusal) {
	if len(rejected) == 0 && !r.refusals.some.Load() {
		return
	}
	byType := make(map[string][]processlog.Refusal)
	for _, a := range attempts {
		i := slices.IndexFunc(rejected, func(r processlog.Refusal) bool { return r.ID == a.Row.ID })
		if i < 0 {
			r.refusals.taken(problemRefusedRenewal, a.Type.Name, a.Row.ID)
			continue
		}
		byType[a.Type.Name] = append(byType[a.Type.Name], rejected[i])
	}
	for name, list := range byType {
		r.refusals.note(problemRefusedRenewal, name, list)
	}
}
