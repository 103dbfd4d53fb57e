package engine

import (
	"context"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/internal/readahead"
	"github.com/compensator-go/compensator/processlog"
)

// maxRefusedOutcomes limits the refused outcomes of one type that wait in a process. At this limit the process
// claims no more entries of the type, because their outcomes could not be stored either.
const maxRefusedOutcomes = processlog.MaxRows

// behindPause is how long claims pause while too many outcomes wait to be stored.
const behindPause = 10 * time.Millisecond

// Scan claims entries when they come due, until ctx ends. It then waits for the claims that are running. Scan sleeps until
// the next due time in the claim schedule, not for a fixed interval. Claims and answers of the source set that time, and
// wake-ups can make it earlier.
func (e *Engine) Scan(ctx context.Context) {
	var claims sync.WaitGroup
	// The claims must have started or released their entries before Run waits for handlers (G15).
	defer claims.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-e.claimSchedule.wake:
		}
		if ctx.Err() != nil {
			return // both cases may be ready, and entries claimed now would only be released again (G15)
		}
		timer.Reset(e.startClaims(&claims))
		if first {
			e.claimSchedule.firstScanEnded()
		}
	}
}

// startClaims starts every claim that is worthwhile now. It returns how long the scanner may sleep.
func (e *Engine) startClaims(claims *sync.WaitGroup) time.Duration {
	switch {
	case e.HoldReason() != nil:
		return peekInterval
	case e.OutcomesBacklogged():
		// New attempts would only wait to store their outcomes, and their leases would end meanwhile (G8).
		return behindPause
	}
	// Claim no more of a type if the database refuses many of its outcomes. More outcomes could not be stored either.
	storable := func(t *Type) bool { return e.Refusals.Outcomes(t.Name) < maxRefusedOutcomes }
	return e.claimSchedule.start(claims, storable, e.claimDue)
}

// claimDue claims and starts entries of a type for the given number of calls. The caller has taken their slots. It
// claims entries that the queue reports as due. It also asks the database if the queue does not answer or holds only
// part of the backlog. Slots that are not needed are released before the claim, so that others can use them.
//
// A claim of a serial type holds one slot until it knows which entries are not blocked. See Type.slotsToSearch.
func (e *Engine) claimDue(t *Type, calls int) claimResult {
	t.slots.Release(calls - t.slotsToSearch(calls))
	backlog := false
	e.claimSchedule.withSchedule(t, func(s *typeSchedule) { backlog = s.backlog })
	if !e.sourceReports() {
		return e.claimFromStore(t, calls)
	}
	result, ok := e.claimFromSource(t, calls)
	if !ok {
		return e.claimFromStore(t, calls)
	}
	// The queue returned fewer entries than there are slots, and the database may hold more. After an error do not ask
	// again, because the database would refuse again.
	if (backlog || result.sourceLostEntries) && result.err == nil && !result.full {
		return e.alsoFromStore(t, calls, result)
	}
	e.Problems.Passed(problemDue, t.Name) // the queue works again, so no later read of the database would clear this problem
	return result
}

// alsoFromStore claims from the database after the queue has returned fewer entries than asked for.
func (e *Engine) alsoFromStore(t *Type, calls int, result claimResult) claimResult {
	// Schedule the queue's next due time now, because the database's answer says nothing about later entries.
	e.Expect(t.Name, result.nextDueIn)
	// claimFromSource has released the slots that it did not need. Take slots again.
	held := t.slots.Take(t.slotsToSearch(calls))
	if held == 0 {
		result.full = true // claim again as soon as a slot is free
		return result
	}
	if !t.IsOrdered() {
		calls = held
	}
	return e.claimFromStore(t, calls)
}

// claimFromSource claims entries that the queue reports as due. It returns false if the queue does not answer. The
// slots then still belong to the caller.
func (e *Engine) claimFromSource(t *Type, calls int) (claimResult, bool) {
	n := t.maxEntries(calls)
	e.claimSchedule.withSchedule(t, func(s *typeSchedule) { n = s.entriesToRequest(n) })
	leased, ok := e.source.Claim(t, n)
	if !ok {
		return claimResult{nextDueIn: processlog.Never}, false
	}
	held := t.slotsToSearch(calls)
	needed := e.adjustSlots(t, held, min(held, t.callsFor(len(leased.IDs))))
	if len(leased.IDs) == 0 {
		return claimResult{sourceEmpty: true, sourceLostEntries: leased.Lost, nextDueIn: leased.Next}, true
	}
	failpoint.Reach(failpoint.QueueClaimed)
	full := len(leased.IDs) == n
	if t.IsOrdered() {
		var err error
		if needed, err = e.removeBlocked(t, &leased, calls); err != nil {
			e.returnToSource(t, leased, claimedRows{}, err)
			return claimResult{err: err}, true
		}
		if len(leased.IDs) == 0 {
			return claimResult{full: full, sourceLostEntries: leased.Lost, nextDueIn: leased.Next}, true
		}
	}
	startedAt := time.Now()
	e.claimSchedule.withSchedule(t, func(s *typeSchedule) { s.pace.Begin(startedAt) })
	if !full {
		// Schedule the next claim before this transaction. Entries that come due during it then get a claim of their own.
		e.Expect(t.Name, leased.Next)
	}
	// The queue's lease is not a claim (G10). Only the database knows whether the entry exists, is due and is free.
	found, err := e.claim(t, wantedByID(leased.IDs), needed)
	e.claimSchedule.withSchedule(t, func(s *typeSchedule) { s.pace.End(time.Since(startedAt)) })
	e.returnToSource(t, leased, found, err)
	if t.claimer != nil {
		e.claimSchedule.withSchedule(t, func(s *typeSchedule) {
			s.offeredEntries, s.runnableEntries = len(leased.IDs), len(leased.IDs)-found.LimitedLater()
		})
	}
	t.slots.Release(needed - t.callsOfRows(found.Mine))
	if err != nil {
		return claimResult{err: err}, true
	}
	if _, err := e.startClaimed(t, found.Mine, found.sentAt, leased.Token); err != nil {
		return claimResult{err: err}, true
	}
	return claimResult{full: full, sourceLostEntries: leased.Lost, nextDueIn: processlog.Never}, true
}

// removeBlocked removes the blocked entries from leased and from the queue. When the earlier entry of the key ends, the
// blocked entry is enqueued again or claimed directly.
//
// removeBlocked then takes slots for the entries that are left. The parameter calls is the maximum number of slots, and
// needed is the number that the claim then holds. Entries without a slot go back to the queue.
func (e *Engine) removeBlocked(t *Type, leased *processlog.Leased, calls int) (needed int, err error) {
	held := t.slotsToSearch(calls)
	ctx, cancel := e.Statement()
	defer cancel()
	blocked, err := t.Blocked(ctx, leased.IDs)
	if err != nil {
		return e.adjustSlots(t, held, 0), err
	}
	for _, id := range blocked {
		e.source.Settle(t.Name, processlog.QueueOutcome{ID: id, Token: leased.Token, Remove: true})
	}
	unblocked := grouped.Without(leased.IDs, blocked)
	e.claimSchedule.withSchedule(t, func(s *typeSchedule) { s.offeredEntries, s.runnableEntries = len(leased.IDs), len(unblocked) })
	needed = e.adjustSlots(t, held, min(calls, t.callsFor(len(unblocked))))
	count := min(len(unblocked), t.maxEntries(needed))
	e.returnToSource(t, *leased, claimedRows{withoutCall: unblocked[count:]}, nil)
	leased.IDs = unblocked[:count]
	return needed, nil
}

// adjustSlots changes the number of slots of a claim from held to needed. It returns the new number. If too few slots are
// free, this number is smaller than needed.
func (e *Engine) adjustSlots(t *Type, held, needed int) int {
	if needed > held {
		return held + t.slots.Take(needed-held)
	}
	e.FreeSlots(t, held-needed)
	return needed
}

// returnToSource settles the queue's leases of entries that were not claimed. Gone entries are removed, and the others
// come due again. Without this, the queue would offer them to no process until its lease ends.
func (e *Engine) returnToSource(t *Type, leased processlog.Leased, found claimedRows, err error) {
	settle := func(id processlog.ID, remove bool, in time.Duration) {
		e.source.Settle(t.Name, processlog.QueueOutcome{ID: id, Token: leased.Token, Remove: remove, In: in})
	}
	if err != nil {
		for _, id := range leased.IDs {
			// The result of the claim is unknown, and the leases it may have taken are released. Spread the entries over
			// time, because other processes use the same database.
			settle(id, false, processlog.LockedRetry+jitter.N(10*processlog.LockedRetry))
		}
	}
	for _, id := range found.Gone {
		// The entry has ended or was never committed. Each further offer would cost a claim.
		settle(id, true, 0)
	}
	for _, w := range found.Waiting {
		settle(w.ID, false, w.In)
	}
	for _, l := range found.Limited {
		settle(l.ID, false, l.In)
	}
	for _, id := range found.withoutCall {
		settle(id, false, 0) // for any process with a free call, perhaps this one
	}
	for _, r := range found.Rejected {
		settle(r.ID, false, e.Refusals.PauseLeft(t.Name, r.ID))
	}
	for i := range found.Refused {
		// A row of another type under this id does not belong to this queue, so remove the id (G10).
		settle(found.Refused[i].ID, found.Refused[i].BusinessType != t.Name, RefusedRetry)
	}
}

// claimFromStore claims entries that the database reports as due. It does not use the queue.
func (e *Engine) claimFromStore(t *Type, calls int) claimResult {
	var readAhead *readahead.List
	e.claimSchedule.withSchedule(t, func(s *typeSchedule) { readAhead = s.readAhead })
	share, needed, err := e.takeShare(t, readAhead, calls)
	if err != nil || len(share.IDs) == 0 {
		return claimResult{fromDatabase: true, nextDueIn: processlog.Never, storeDrained: err == nil, err: err}
	}
	failpoint.Reach(failpoint.DueRead)
	found, err := e.claim(t, wantedByID(share.IDs), needed)
	t.slots.Release(needed - t.callsOfRows(found.Mine))
	if err == nil {
		_, err = e.startClaimed(t, found.Mine, found.sentAt, 0)
	}
	readAhead.ClaimEnded(share, found.Claimed, err)
	if err != nil {
		return claimResult{nextDueIn: processlog.Never, err: err}
	}
	// These entries were just read, and none could be claimed, so other processes hold them. Asking again at once would
	// not help.
	lostRace := share.JustRead && len(found.Mine) == 0
	more := share.MoreDue || len(found.withoutCall) > 0
	return claimResult{fromDatabase: true, full: more && !lostRace, lostRace: more && lostRace, storeDrained: !more, nextDueIn: processlog.Never}
}

// takeShare returns due entries to claim, and the number of slots that they hold.
func (e *Engine) takeShare(t *Type, readAhead *readahead.List, calls int) (readahead.Share, int, error) {
	share, err := readAhead.Take(t.maxEntries(calls), func(limit int) ([]processlog.ID, bool, error) { return e.findDue(t, limit) })
	// The share may hold more entries than there are slots, because its first entries may not be claimable.
	needed := e.adjustSlots(t, t.slotsToSearch(calls), min(calls, t.callsFor(len(share.IDs))))
	if t.IsOrdered() {
		readAhead.PutBack(&share, t.maxEntries(needed))
	}
	return share, needed, err
}

// findDue reads due entries from the database. For a serial type it leaves out blocked entries. The boolean result says
// whether to expect more entries from the next call.
func (e *Engine) findDue(t *Type, limit int) (due []processlog.ID, more bool, err error) {
	ctx, cancel := e.Statement()
	defer cancel()
	if t.IsOrdered() {
		due, more, err = t.order.Find(ctx)
	} else {
		due, err = e.Store.Due(ctx, t.Name, limit)
		more = len(due) == limit
	}
	if err != nil {
		e.Problems.Failed(problemDue, t.Name, err)
		e.watcher.Failed()
		return nil, false, err
	}
	e.Problems.Passed(problemDue, t.Name)
	return due, more, nil
}
