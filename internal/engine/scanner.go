package engine

import (
	"context"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/processlog"
)

// behindPause is how long claims wait while the database is behind with outcomes.
const behindPause = 10 * time.Millisecond

// scanner claims entries when they come due. It sleeps until the next due moment its claim schedule knows of, not for an
// interval: claims and peeks say when that is, and wake-ups make it earlier.
type scanner struct {
	*Base
	types            *types
	claimSchedule    *claimSchedule
	source           *source
	rollbackDetector *rollbackDetector
	holdings         *holdings
	claims           *claims
	settler          *settler
	dispatcher       *dispatcher
}

// run claims what is due until ctx ends, and waits for the claims it has begun.
func (s *scanner) run(ctx context.Context) {
	var claims sync.WaitGroup
	// What claims bring is started, or given back, before Run looks for handlers to wait for (G15).
	defer claims.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.claimSchedule.wake:
		}
		if ctx.Err() != nil {
			return // both may have come, and a claim sent now would be given back (G15)
		}
		timer.Reset(s.step(ctx, &claims))
	}
}

// step starts every claim that is worth one now and returns how long there is nothing to do.
func (s *scanner) step(ctx context.Context, claims *sync.WaitGroup) time.Duration {
	a := s.claimSchedule
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	// The database has gone back (G19). A person who says go on wakes this loop.
	if s.rollbackDetector.stopped() != nil {
		return peekInterval
	}
	if s.settler.behind() {
		// More attempts would only wait for their outcomes to be stored, and leases would end meanwhile (G8).
		return behindPause
	}
	next := now.Add(peekInterval)
	for _, name := range a.names {
		t, typeSchedule := s.types.named(name), a.byType[name]
		s.beginLocked(t, typeSchedule, now, claims)
		if typeSchedule.wait > 0 {
			if at := s.lookLocked(t, typeSchedule, now, claims.Go); now.Before(at) && at.Before(next) {
				next = at
			}
		}
		next = t.roomAt(now, next)
		if typeSchedule.claiming < claimsInFlight && now.Before(typeSchedule.due) && typeSchedule.due.Before(next) {
			next = typeSchedule.due // what is due already waits for a claim to end, or a slot
		}
	}
	return max(0, time.Until(next))
}

// beginLocked starts as many claims of a type as are worth it now.
func (s *scanner) beginLocked(t *Type, typeSchedule *typeSchedule, now time.Time, claims *sync.WaitGroup) {
	// Of a type whose outcomes cannot be stored, more would only be done in vain.
	for typeSchedule.wants(t, now) && s.claims.refusals.outcomes(t.Name) < mostRefusedOutcomes {
		// All it may bring, before it is asked for: an entry that is claimed and has no slot lets its lease pass, and
		// that counts (G16).
		calls := t.slots.Take(t.callsFor(processlog.MaxRows))
		if calls == 0 {
			return
		}
		began := typeSchedule.begin(now)
		claims.Go(func() { s.claimSchedule.claimEnded(t, s.claimDue(t, calls), began) })
	}
}

// claimDue claims, and starts, entries of a type for so many calls, whose slots are taken: what the queue says is due and,
// where it is silent or holds only a part of the backlog, what the database says. Slots that turn out to be too many are
// given back at once: others can use them before the claim is over.
func (s *scanner) claimDue(t *Type, calls int) claimResult {
	backlog := s.claimSchedule.hasBacklog(t)
	if !s.source.up() {
		return s.claimFromStore(t, calls)
	}
	got, ok := s.claimFromSource(t, calls)
	if !ok {
		return s.claimFromStore(t, calls)
	}
	// The queue had less than there are slots, and may not know the rest. What the database has refused it would
	// refuse again.
	if (backlog || got.lost) && got.err == nil && !got.full {
		return s.alsoFromStore(t, calls, got)
	}
	s.Problems.Passed(problemDue, t.Name) // the queue has taken over, and nobody will ask the database again
	return got
}

// alsoFromStore goes on where the queue had less than it was asked for.
func (s *scanner) alsoFromStore(t *Type, calls int, got claimResult) claimResult {
	// What the queue has said is kept: the database's answer tells nothing of what comes next.
	s.claimSchedule.expect(t.Name, got.next)
	// The rest of the slots went back when the queue had answered.
	if calls = t.slots.Take(calls); calls == 0 {
		got.full = true // as soon as a slot is free
		return got
	}
	return s.claimFromStore(t, calls)
}

// claimFromSource returns false, and the slots are the caller's still, when the queue does not answer.
func (s *scanner) claimFromSource(t *Type, calls int) (claimResult, bool) {
	n := t.fits(calls)
	leased, ok := s.source.Claim(t, n)
	if !ok {
		return claimResult{next: processlog.Never}, false
	}
	needed := min(calls, t.callsFor(len(leased.IDs)))
	s.claimSchedule.free(t, calls-needed)
	if len(leased.IDs) == 0 {
		return claimResult{nothing: true, lost: leased.Lost, next: leased.Next}, true
	}
	failpoint.Reach(failpoint.QueueClaimed)
	full := len(leased.IDs) == n
	free, err := s.leaveBlocked(t, &leased)
	if err != nil {
		s.returnToSource(t, leased, claimed{}, err)
		t.slots.Release(needed)
		return claimResult{err: err}, true
	}
	if len(free) < len(leased.IDs) {
		leased.IDs = free
		spare := needed - min(needed, t.callsFor(len(free)))
		s.claimSchedule.free(t, spare)
		needed -= spare
	}
	if len(free) == 0 {
		return claimResult{full: full, lost: leased.Lost, next: leased.Next}, true
	}
	began := time.Now()
	s.claimSchedule.began(t, began)
	if !full {
		// Before the transaction, not after it: what comes due during it has a claim of its own.
		s.claimSchedule.expect(t.Name, leased.Next)
	}
	// The queue's lease is no claim (G10): whether the entry is due, free and there at all the database says.
	found, err := s.claims.claim(t, unleased(leased.IDs), needed)
	s.claimSchedule.ended(t, time.Since(began))
	s.returnToSource(t, leased, found, err)
	t.slots.Release(needed - t.calls(found.Mine))
	if err != nil {
		return claimResult{err: err}, true
	}
	if err := s.dispatcher.startClaimed(t, found.Mine, found.asked, leased.Token); err != nil {
		return claimResult{err: err}, true
	}
	return claimResult{full: full, lost: leased.Lost, next: processlog.Never}, true
}

// leaveBlocked takes entries that wait for another of their key out of the queue, and returns the others. When the other
// one has ended, the next is enqueued anew, or claimed where it ended.
func (s *scanner) leaveBlocked(t *Type, leased *processlog.Leased) ([]processlog.ID, error) {
	ctx, cancel := s.Statement()
	defer cancel()
	blocked, err := t.blocked(ctx, leased.IDs)
	if err != nil || len(blocked) == 0 {
		return leased.IDs, err
	}
	for _, id := range blocked {
		s.source.Settle(t.Name, processlog.QueueOutcome{ID: id, Token: leased.Token, Remove: true})
	}
	return grouped.Without(leased.IDs, blocked), nil
}

// returnToSource settles the queue's leases of entries that were not claimed: gone ones are removed, the
// others come due again. Left alone, the queue would offer them to nobody for a lease.
func (s *scanner) returnToSource(t *Type, leased processlog.Leased, found claimed, err error) {
	add := func(id processlog.ID, remove bool, in time.Duration) {
		s.source.Settle(t.Name, processlog.QueueOutcome{ID: id, Token: leased.Token, Remove: remove, In: in})
	}
	if err != nil {
		for _, id := range leased.IDs {
			// The claim's end is unknown, and what it may have taken is given back. Apart from each other, for others
			// have the same database.
			add(id, false, processlog.LockedRetry+jitter.N(10*processlog.LockedRetry))
		}
	}
	for _, id := range found.Gone {
		// It has ended, or was never committed: offered again it would cost a claim each time.
		add(id, true, 0)
	}
	for _, w := range found.Waiting {
		add(w.ID, false, w.In)
	}
	for _, id := range found.spare {
		add(id, false, 0) // for whoever has a call free, perhaps this process once more
	}
	for _, r := range found.Rejected {
		add(r.ID, false, s.claims.refusals.in(t.Name, r.ID))
	}
	for i := range found.Refused {
		// A row that got the id of one of this type is not this queue's (G10).
		add(found.Refused[i].ID, found.Refused[i].BusinessType != t.Name, RefusedRetry)
	}
}

// claimFromStore is the same without the queue's help.
func (s *scanner) claimFromStore(t *Type, calls int) claimResult {
	n := t.fits(calls)
	ahead := s.claimSchedule.readAhead(t)
	share, err := ahead.take(n, func(limit int) ([]processlog.ID, bool, error) { return s.findDue(t, limit) })
	needed := min(calls, t.callsFor(len(share.ids)))
	s.claimSchedule.free(t, calls-needed)
	if err != nil || len(share.ids) == 0 {
		return claimResult{blind: true, next: processlog.Never, drained: err == nil, err: err}
	}
	failpoint.Reach(failpoint.DueRead)
	// It may ask for more than there are slots: what stands in front may not be to be had.
	found, err := s.claims.claim(t, unleased(share.ids), needed)
	t.slots.Release(needed - t.calls(found.Mine))
	if err == nil {
		err = s.dispatcher.startClaimed(t, found.Mine, found.asked, 0)
	}
	ahead.tried(share, found.Claimed, err)
	if err != nil {
		return claimResult{next: processlog.Never, err: err}
	}
	// What was just read, and can be claimed in no part, is held by others: asking again at once is no use.
	beaten := share.fresh && len(found.Mine) == 0
	more := share.more || len(found.spare) > 0
	return claimResult{blind: true, full: more && !beaten, beaten: more && beaten, drained: !more, next: processlog.Never}
}

// findDue reads from the database what is due, and of a serial type what nothing blocks. It reports whether there may be more.
func (s *scanner) findDue(t *Type, limit int) (due []processlog.ID, more bool, err error) {
	ctx, cancel := s.Statement()
	defer cancel()
	if finder := t.finder(); finder != nil {
		due, more, err = finder.Find(ctx)
	} else {
		due, err = s.Store.Due(ctx, t.Name, limit)
		more = len(due) == limit
	}
	if err != nil {
		s.Problems.Failed(problemDue, t.Name, err)
		s.rollbackDetector.verifyLater() // as a claim that failed: what answers next may be another server (G19)
		return nil, false, err
	}
	s.Problems.Passed(problemDue, t.Name)
	return due, more, nil
}
