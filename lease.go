package compensator

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/grouped"
)

// stuckAfter is how long a handler may take to return once its timeout has ended its context.
const stuckAfter = time.Second

// renew keeps the leases of running attempts, and of those whose outcome waits to be stored, alive until ctx
// ends. A handler past its timeout is renewed no more: one that never returns must not hold its entry for ever.
func (d *dispatcher) renew(ctx context.Context) {
	ticker := time.NewTicker(d.c.renewInterval())
	defer ticker.Stop()
	for ctx.Err() == nil { // asked for itself: a tick may have come during a long round, and the end, too
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		due := d.needRenewal()
		for _, lease := range due.Order {
			if ctx.Err() != nil {
				return
			}
			d.renewAll(lease, due.Groups[lease])
		}
	}
}

// renewInterval is short enough for the shortest lease. Most attempts end before they need a renewal; then
// a round costs a look at memory.
func (c *Compensator) renewInterval() time.Duration {
	return min(c.types.leaseRange().shortest/10, time.Second)
}

// needRenewal finds the attempts with a third of their lease gone, by lease and in the order of their ids, and
// reports stuck ones.
func (d *dispatcher) needRenewal() grouped.Groups[time.Duration, *attempt] {
	now := time.Now()
	var due []*attempt
	var stuck []*attempt
	d.mu.Lock()
	for _, a := range d.held {
		lease := a.t.cfg.Lease
		switch {
		case a.lapsed, a.anew && !a.returned.Load(): // nothing to renew, or under way
		case !a.returned.Load() && now.Sub(a.started) > a.t.cfg.Timeout+stuckAfter:
			if !a.stuck {
				a.stuck = true
				stuck = append(stuck, a)
			}
		case !a.returned.Load() && now.After(a.leaseEnd):
			a.endLocked(ErrLeaseLost) // the database did not answer in time: somebody else may have it
		case a.leaseEnd.Sub(now) < lease*2/3: // also while its outcome waits for the database: nobody else shall run it
			due = append(due, a)
		}
	}
	due = d.newestLocked(due)
	d.mu.Unlock()
	for _, a := range stuck {
		d.leaveQuarantine(a) // it has not killed the process, and may never return
		event := a.event(nil)
		d.c.log.Error("compensator: handler runs on after its timeout", "entry", event.ID, "type", event.BusinessType, "attempt", event.Attempt)
		tell(d.c, d.c.cfg.Observer.Stuck, event)
	}
	return grouped.By(due, func(a *attempt) time.Duration { return a.t.cfg.Lease })
}

// newestLocked sorts attempts by id and keeps the last claimed of each entry. Where there are several, a person has
// requeued the entry while the others ran on: their leases have gone, and what the store tells of lost ones, by id, must
// not be taken for news of the new one.
func (d *dispatcher) newestLocked(due []*attempt) []*attempt {
	slices.SortFunc(due, func(a, b *attempt) int {
		return cmp.Or(a.row.ID.Compare(b.row.ID), cmp.Compare(b.row.Version, a.row.Version))
	})
	newest := due[:0]
	for _, a := range due {
		if n := len(newest); n > 0 && newest[n-1].row.ID == a.row.ID {
			d.loseLocked(a)
		} else {
			newest = append(newest, a)
		}
	}
	return newest
}

// loseLocked deals with a lease that has gone.
func (d *dispatcher) loseLocked(a *attempt) {
	if a.returned.Load() {
		a.lapsed = true // its outcome is being stored, or will be found out of date; until then it is held
	} else {
		a.endLocked(ErrLeaseLost)
	}
}

func (d *dispatcher) renewAll(lease time.Duration, attempts []*attempt) {
	held := make([]Held, len(attempts))
	for i, a := range attempts {
		held[i] = Held{ID: a.row.ID, Version: a.row.Version}
	}
	ctx, cancel := context.WithTimeout(d.c.work, min(lease/3, statementTimeout))
	defer cancel()
	asked := time.Now()
	lost, err := d.c.store.Renew(ctx, held, lease)
	d.c.saw(troubleRenew, err)
	if err != nil {
		return
	}
	failpoint.Reach(failpoint.LeaseRenewed)
	gone := make(map[EntryID]bool, len(lost))
	for _, id := range lost {
		gone[id] = true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range attempts {
		if gone[a.row.ID] {
			d.loseLocked(a)
		} else {
			a.leaseEnd = asked.Add(lease)
		}
	}
}
