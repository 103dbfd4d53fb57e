package engine

import (
	"context"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
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

// claimDue claims and starts entries of a type for the given number of calls. The caller has taken their slots.
//
// A claim of a serial type holds one slot until it knows which entries are not blocked. See Type.SlotsToSearch.
func (e *Engine) claimDue(t *Type, calls int) ClaimResult {
	t.slots.Release(calls - t.SlotsToSearch(calls))
	return e.source.ClaimDue(t, calls)
}

// ClaimOffered claims and starts entries that a source has offered, for the given number of calls. The caller has taken
// their slots. It calls answered with the result of the claim, before any entry starts. The source's lease is not a claim
// (G10). Only the database knows whether an entry exists, is due and is free.
//
// full says that the source offered all entries that it was asked for. If not, ClaimOffered schedules a claim for the time
// at which the source has the next entry due.
func (e *Engine) ClaimOffered(t *Type, offer processlog.Leased, calls int, full bool, answered func(found ClaimedRows, err error)) ClaimResult {
	sentAt := time.Now()
	e.withSchedule(t, func(s *typeSchedule) { s.pace.Begin(sentAt) })
	if !full {
		// Schedule the next claim before this transaction. Entries that come due during it then get a claim of their own.
		e.Expect(t.Name, offer.Next)
	}
	found, err := e.claim(t, wantedByID(offer.IDs), calls)
	e.withSchedule(t, func(s *typeSchedule) { s.pace.End(time.Since(sentAt)) })
	answered(found, err)
	t.slots.Release(calls - t.callsOfRows(found.Mine))
	if err == nil {
		_, err = e.startClaimed(found, offer.Token)
	}
	return ClaimResult{Full: full && err == nil, NextDueIn: processlog.Never, Err: err}
}

// ExpectBacklog schedules a claim of a type from the database, which holds due entries that the source does not report.
func (e *Engine) ExpectBacklog(businessType string) {
	e.source.NoteBacklog(businessType) // before the scanner wakes, so that its next claim also asks the database
	e.claimSchedule.expectNow(businessType)
}

// HasMore reports whether the last claims left due entries of the type, in the source or in the database.
func (e *Engine) HasMore(t *Type) bool {
	return e.claimSchedule.hasMore(t) || e.source.HasBacklog(t.Name)
}

// AdjustSlots changes the number of slots of a claim from held to needed. It returns the new number. If too few slots are
// free, this number is smaller than needed.
func (e *Engine) AdjustSlots(t *Type, held, needed int) int {
	if needed > held {
		return held + t.slots.Take(needed-held)
	}
	e.FreeSlots(t, held-needed)
	return needed
}

// ClaimFromStore claims and starts entries that the database reports as due, for the given number of calls. The caller
// holds Type.SlotsToSearch slots for them.
func (e *Engine) ClaimFromStore(t *Type, calls int) ClaimResult {
	var readAhead *readahead.List
	e.withSchedule(t, func(s *typeSchedule) { readAhead = s.readAhead })
	share, needed, err := e.takeShare(t, readAhead, calls)
	if err != nil || len(share.IDs) == 0 {
		return ClaimResult{FromDatabase: true, NextDueIn: processlog.Never, StoreDrained: err == nil, Err: err}
	}
	failpoint.Reach(failpoint.DueRead)
	found, err := e.claim(t, wantedByID(share.IDs), needed)
	t.slots.Release(needed - t.callsOfRows(found.Mine))
	if err == nil {
		_, err = e.startClaimed(found, 0)
	}
	readAhead.ClaimEnded(share, found.Claimed, err)
	if err != nil {
		return ClaimResult{NextDueIn: processlog.Never, Err: err}
	}
	// These entries were just read, and none could be claimed, so other processes hold them. Asking again at once would
	// not help.
	lostRace := share.JustRead && len(found.Mine) == 0
	more := share.MoreDue || len(found.WithoutCall) > 0
	return ClaimResult{FromDatabase: true, Full: more && !lostRace, LostRace: more && lostRace, StoreDrained: !more, NextDueIn: processlog.Never}
}

// takeShare returns due entries to claim, and the number of slots that they hold.
func (e *Engine) takeShare(t *Type, readAhead *readahead.List, calls int) (readahead.Share, int, error) {
	share, err := readAhead.Take(t.MaxEntries(calls), func(limit int) ([]processlog.ID, bool, error) { return e.findDue(t, limit) })
	// The share may hold more entries than there are slots, because its first entries may not be claimable.
	needed := e.AdjustSlots(t, t.SlotsToSearch(calls), min(calls, t.CallsFor(len(share.IDs))))
	if t.IsOrdered() {
		readAhead.PutBack(&share, t.MaxEntries(needed))
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
		e.Problems.Failed(ProblemDue, t.Name, err)
		e.watcher.Failed()
		return nil, false, err
	}
	e.Problems.Passed(ProblemDue, t.Name)
	return due, more, nil
}
