package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/readahead"
	"github.com/compensator-go/compensator/internal/refusals"
	"github.com/compensator-go/compensator/processlog"
)

// MaxRefusedOutcomes is how many outcomes of one type may wait in this process because the database has refused to
// store them.
const MaxRefusedOutcomes = processlog.MaxRows

// behindPause is how long claims pause while too many outcomes wait to be stored.
const behindPause = 10 * time.Millisecond

// Scan claims entries when they become due, until ctx ends. Before Scan returns, it waits for the claims that are still
// running.
func (e *Engine) Scan(ctx context.Context) {
	var claims sync.WaitGroup
	// Wait for the claims here. Once Scan has returned, Run waits only for the handlers. See promise G15.
	defer claims.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-e.claimSchedule.wake:
		}
		// Check ctx again. If ctx has ended and the timer has fired too, the select statement picks either case at
		// random. A claim after the end of ctx is useless, because its entries would only be released again. See
		// promise G15.
		if ctx.Err() != nil {
			return
		}
		timer.Reset(e.startClaims(&claims))
	}
}

func (e *Engine) startClaims(claims *sync.WaitGroup) time.Duration {
	switch {
	case e.HoldReason() != nil:
		return peekInterval
	case e.OutcomesBacklogged():
		// Too many outcomes wait to be stored, because the database is slow or refuses them. Claim nothing now: the
		// outcomes of new attempts would only wait behind them. See promise G8: a reported success is stored.
		return behindPause
	}
	return e.claimSchedule.start(claims, e)
}

// OutcomesRefused reports whether at least MaxRefusedOutcomes outcomes of a type wait to be stored. In this case, this
// process must claim no more entries of the type.
func (e *Engine) OutcomesRefused(t *Type) bool {
	return e.Refusals.Outcomes(t.Name) >= MaxRefusedOutcomes
}

// claimDue claims and starts entries of a type. The caller has taken a slot for each call.
func (e *Engine) claimDue(t *Type, calls int, backlog bool) ClaimResult {
	t.slots.Release(calls - t.SlotsToSearch(calls))
	return e.source.ClaimDue(t, calls, backlog)
}

// ClaimOffered claims and starts entries that a queue has offered. The caller has taken slots for the given number of
// calls. ClaimOffered passes the result of the claim to onClaimed before any entry starts. The queue's lease of an
// entry is no claim: only the database knows whether the entry exists, is due and is free. See promise G10.
//
// full says that the queue offered as many entries as it was asked for.
func (e *Engine) ClaimOffered(t *Type, offer processlog.Leased, calls int, full bool, onClaimed func(found ClaimedRows, err error)) ClaimResult {
	sentAt := time.Now()
	e.claimSchedule.with(t.Name, func(s *typeSchedule) { s.pace.Begin(sentAt) })
	if !full {
		// Schedule the next claim before this transaction begins, so that a slow transaction does not delay the next
		// claim.
		e.Expect(t.Name, offer.Next)
	}
	found, err := e.claim(t, wantedByID(offer.IDs), calls)
	e.claimSchedule.with(t.Name, func(s *typeSchedule) { s.pace.End(time.Since(sentAt)) })
	onClaimed(found, err)
	if err == nil {
		_, err = e.startClaimed(found, offer.Token)
	}
	return ClaimResult{Full: full && err == nil, NextDueIn: processlog.Never, Err: err}
}

// ExpectBacklog makes the next claim of a type begin now. This claim reads due entries from the database, even if a source
// reports due entries.
func (e *Engine) ExpectBacklog(businessType string) {
	e.claimSchedule.with(businessType, func(s *typeSchedule) { s.backlog, s.found.backlogs = true, s.found.backlogs+1 })
	e.Expect(businessType, 0)
}

// HasMore reports whether more entries of the type are probably due. The reason may be a claim that got as many entries
// as it asked for. The other possible reason is a backlog: the database holds due entries that the source does not
// report.
func (e *Engine) HasMore(t *Type) (more bool) {
	e.claimSchedule.with(t.Name, func(s *typeSchedule) { more = s.moreDue || s.backlog })
	return more
}

// AdjustSlots takes or frees slots of a claim. The claim holds as many slots as the parameter held says, and needs as
// many as the parameter needed says. AdjustSlots returns how many slots the claim holds now. The result is smaller than
// needed if too few slots are free.
func (e *Engine) AdjustSlots(t *Type, held, needed int) int {
	if needed > held {
		return held + t.slots.Take(needed-held)
	}
	e.FreeSlots(t, held-needed)
	return needed
}

// ClaimFromStore reads due entries of a type from the database, claims them and starts them. The parameter named calls
// is the maximum number of handler calls that begin. The caller has already taken the slots for the search: see
// Type.SlotsToSearch.
func (e *Engine) ClaimFromStore(t *Type, calls int) ClaimResult {
	var readAhead *readahead.List
	e.claimSchedule.with(t.Name, func(s *typeSchedule) { readAhead = s.readAhead })
	share, needed, err := e.takeShare(t, readAhead, calls)
	if err != nil || len(share.IDs) == 0 {
		return ClaimResult{FromDatabase: true, NextDueIn: processlog.Never, StoreDrained: err == nil, Err: err}
	}
	failpoint.Reach(failpoint.DueRead)
	found, err := e.claim(t, wantedByID(share.IDs), needed)
	if err == nil {
		_, err = e.startClaimed(found, 0)
	}
	readAhead.ClaimEnded(share, found.Claimed, err)
	if err != nil {
		return ClaimResult{NextDueIn: processlog.Never, Err: err}
	}
	// Other processes have claimed all entries that this claim has just read. Another claim at once would probably lose
	// the race again.
	lostRace := share.JustRead && len(found.Mine) == 0
	more := share.MoreDue || len(found.WithoutCall) > 0
	return ClaimResult{FromDatabase: true, Full: more && !lostRace, LostRace: more && lostRace, StoreDrained: !more, NextDueIn: processlog.Never}
}

// takeShare takes the due entries of one claim from the read-ahead list.
func (e *Engine) takeShare(t *Type, readAhead *readahead.List, calls int) (readahead.Share, int, error) {
	share, err := readAhead.Take(t.MaxEntries(calls), func(limit int) ([]processlog.ID, bool, error) { return e.findDue(t, limit) })
	needed := e.AdjustSlots(t, t.SlotsToSearch(calls), min(calls, t.CallsFor(len(share.IDs))))
	if t.IsOrdered() {
		readAhead.PutBack(&share, t.MaxEntries(needed))
	}
	return share, needed, err
}

// findDue reads due entries from the database. more says whether to expect further entries from the next call.
func (e *Engine) findDue(t *Type, limit int) (due []processlog.ID, more bool, err error) {
	ctx, cancel := e.Statement()
	defer cancel()
	if t.IsOrdered() {
		due, more, err = t.order.Find(ctx)
	} else {
		due, err = e.Store.Due(ctx, t.Name, limit)
		more = len(due) == limit
	}
	e.Problems.NoteResult(ProblemDue, t.Name, err)
	if err != nil {
		e.watcher.Failed()
		return nil, false, err
	}
	return due, more, nil
}

// SkippedRetry is the time after which the queue again offers an entry that a claim in this process has skipped. A
// claim skips a due entry that must not run here now, for example because Admission.Accept has returned false.
const SkippedRetry = time.Second

// ClaimedRows is the result of a claim. Each handler call of the rows in Mine holds a slot.
type ClaimedRows struct {
	processlog.Claimed
	Type        *Type
	SentAt      time.Time       // when the claim statement was sent; no lease begins earlier
	WithoutCall []processlog.ID // claimable entries for which no call was left
}

// claim tries to lease the wanted entries of a type in the database. It leases only as many entries as fit into the
// given number of handler calls. The caller has taken a slot for each of these calls. Before claim returns, it releases
// the slots that the leased rows do not need.
func (e *Engine) claim(t *Type, wanted []processlog.Wanted, calls int) (ClaimedRows, error) {
	found, err := e.leaseWanted(t, wanted, calls, false)
	t.slots.Release(calls - t.callsOfRows(found.Mine))
	return found, err
}

// leaseWanted leases entries in the database. It leases only entries that are free, due and allowed to run here. The
// caller takes and releases the slots. If stuckOnly is true, leaseWanted leases only entries whose handler is stuck in
// this process.
func (e *Engine) leaseWanted(t *Type, wanted []processlog.Wanted, calls int, stuckOnly bool) (ClaimedRows, error) {
	if err := e.HoldReason(); err != nil {
		return ClaimedRows{}, err
	}
	wanted, pending := e.Releases.WithoutPending(wanted, SkippedRetry)
	wanted, refused := e.Refusals.WithoutPaused(t.Name, wanted)
	if len(wanted) == 0 {
		return ClaimedRows{Claimed: processlog.Claimed{Waiting: pending, Refused: refused}, Type: t}, nil
	}
	p := picker{seating: seating{t: t}, holdings: e.holdings, wanted: wanted, maxCalls: calls, stuckOnly: stuckOnly}
	token := e.LeaseToken()
	ctx, cancel := e.Statement()
	defer cancel()
	claim := e.Store.Claim
	for _, a := range t.admissions {
		if a.Claim != nil {
			claim = a.Claim
		}
	}
	// Read the clock before the statement is sent. The leases begin in the database, before the answer arrives here. If
	// this process counted a lease from the arrival of the answer, it would expect the end of the lease too late. See
	// promise G16.
	sentAt := time.Now()
	found, err := claim(ctx, wanted, token, t.Lease, p.accept)
	failpoint.Reach(failpoint.ClaimCommitted)
	e.NoteResult(problemClaim, err)
	if err == nil {
		err = e.watcher.Claimed(found.Mine, sentAt)
	} else {
		e.watcher.Failed()
	}
	if err != nil {
		// The claim may have committed although it returned an error. Run nothing, and release the leases that the
		// claim may have taken. Without a release, each lease would end by itself and count as lost.
		p.reportUnclaimedSuspects(nil)
		e.Releases.ReleaseUnknown(token, wanted)
		return ClaimedRows{}, err
	}
	p.reportUnclaimedSuspects(found.Mine)
	e.noteRefusedClaims(t, found)
	found = p.setAsideCounted(found)
	found.Waiting = append(found.Waiting, pending...)
	found.Refused = append(found.Refused, refused...)
	found.Skipped = slices.DeleteFunc(found.Skipped, func(row processlog.Row) bool { return slices.Contains(p.withoutSeat, row.ID) })
	return ClaimedRows{found, t, sentAt, p.withoutSeat}, nil
}

func (e *Engine) noteRefusedClaims(t *Type, found processlog.Claimed) {
	e.Refusals.Note(refusals.Claim, t.Name, found.Refused)
	e.Refusals.Accepted(refusals.Claim, t.Name, found.Gone...)
	for i := range found.Mine {
		e.Refusals.Accepted(refusals.Claim, t.Name, found.Mine[i].ID)
	}
}

func wantedByID(ids []processlog.ID) []processlog.Wanted {
	wanted := make([]processlog.Wanted, len(ids))
	for i, id := range ids {
		wanted[i] = processlog.Wanted{ID: id}
	}
	return wanted
}

// picker decides for each claimable row whether the claim takes the row. It takes few suspects (entries that may have
// crashed a process) at a time, because a crash costs every claimed suspect a lease. The method accept runs while the
// store holds the row locks, so accept only reads memory and does not block.
type picker struct {
	seating
	holdings    *holdings
	wanted      []processlog.Wanted
	maxCalls    int              // maximum number of calls that may begin
	stuckOnly   bool             // take only entries whose handler is stuck in this process
	withoutSeat []processlog.ID  // entries that were not taken, because all handler calls were full
	suspects    []processlog.Row // accepted rows that have lost leases
	countedOnly []processlog.ID  // entries claimed only to count a lost lease, not to run
}

func (p *picker) accept(row *processlog.Row) bool {
	// First find out whether a handler call has a free seat for the entry. The method mayClaim calls Admission.Accept,
	// which counts the suspects that it accepts. A suspect is an entry that may have crashed a process, and only few of
	// them may be accepted at once. So a suspect without a seat must not be counted.
	class := p.t.sharingClass(row.State, p.lostLeases(row))
	if p.calls == p.maxCalls && p.seatsLeft[class] == 0 {
		p.withoutSeat = append(p.withoutSeat, row.ID)
		return false
	}
	if row.BusinessType != p.t.Name || p.t.Paused() || row.State == processlog.Compensating && !p.t.compensates() || !p.mayClaim(row) {
		return false
	}
	p.take(class)
	return true
}

// mayClaim reports whether this process may claim a row. In these cases the claim runs nothing:
//
//   - The entry's handler is stuck in this process.
//   - The entry has lost three leases.
//
// The lease of this claim then ends unused, and counts as one more lost lease. During this lease, a process that still
// runs the entry may store its success.
func (p *picker) mayClaim(row *processlog.Row) bool {
	attempt, held := p.holdings.HeldAttempt(row)
	stuck := attempt.Stuck
	switch {
	// The method countStuck claims without slots, because a claim of an entry with a stuck handler runs nothing. But
	// this handler has returned in the meantime, so the claim would run the entry without a slot.
	case p.stuckOnly && !stuck:
		return false
	// This process leaves the entry alone in two cases:
	//   - It has an attempt of the entry whose handler is not stuck.
	//   - The handler is stuck, and the entry has been due and free for less than one lease. In this time another
	//     process may claim the entry. The fields LeaseLeft and DueIn are negative while the entry is due and free.
	case held && !stuck, stuck && min(-row.LeaseLeft, -row.DueIn) < p.t.Lease:
		return false
	// The entry has lost too many leases. The claim takes the entry only to make it dead. No handler runs, so do not
	// ask the features whether the entry may run.
	case row.DeliveryCount > crashBudget:
		return true
	case stuck, row.DeliveryCount == crashBudget:
		p.countedOnly = append(p.countedOnly, row.ID)
		return true
	}
	lost := p.lostLeases(row)
	accepted := p.t.accepts(row, lost)
	if accepted && lost >= SuspectAfter {
		p.suspects = append(p.suspects, *row)
	}
	return accepted
}

// lostLeases returns how many consecutive leases of an entry ended without an outcome. The parameter unclaimed holds
// the entry's row as it was before the claim. If this process inserted the entry with a lease, that lease does not
// count as lost, because no handler has run under it.
func (p *picker) lostLeases(unclaimed *processlog.Row) int {
	wanted := processlog.Wanted{ID: unclaimed.ID, Token: unclaimed.Token}
	if unclaimed.Version == 0 && unclaimed.DeliveryCount > 0 && wanted.Token != (processlog.Token{}) && slices.Contains(p.wanted, wanted) {
		return unclaimed.DeliveryCount - 1
	}
	return unclaimed.DeliveryCount
}

func (p *picker) reportUnclaimedSuspects(mine []processlog.Row) {
	for i := range p.suspects {
		s := &p.suspects[i]
		if !slices.ContainsFunc(mine, func(row processlog.Row) bool { return row.ID == s.ID }) {
			suspectDone(p.t.admissions, s, p.lostLeases(s), NotClaimed)
		}
	}
}

// setAsideCounted moves the entries in p.countedOnly from found.Mine to found.Waiting, so that they do not run. The
// lease that the claim has taken on these entries ends unused, and so counts as one more lost lease. The entries are
// due again when this lease ends.
func (p *picker) setAsideCounted(found processlog.Claimed) processlog.Claimed {
	if len(p.countedOnly) == 0 {
		return found
	}
	found.Mine = slices.DeleteFunc(found.Mine, func(row processlog.Row) bool {
		counted := slices.Contains(p.countedOnly, row.ID)
		if counted {
			found.Waiting = append(found.Waiting, processlog.Scheduled{ID: row.ID, In: p.t.Lease})
		}
		return counted
	})
	return found
}

// ClaimWithSlots claims wanted entries in slots that the caller has taken. It frees the slots that no leased entry
// needs. It enqueues the entries that it could not lease, except those in ClaimedRows.WithoutCall. The caller handles
// the entries in WithoutCall.
func (e *Engine) ClaimWithSlots(t *Type, wanted []processlog.Wanted, calls int) (ClaimedRows, error) {
	found, err := e.claim(t, wanted, calls)
	e.slotFreed(t.Name)
	if err != nil {
		return found, err
	}
	e.source.Enqueue(e.Unleased(t, found))
	return found, nil
}

// Unleased returns the entries that a claim of the type t could not lease, each with the time until it can be claimed.
// The result leaves out the entries in found.WithoutCall.
//
// For the entries in found.Skipped, the result has the business type of the row and not that of t. These entries may
// have another type, because a queue may have offered them under a wrong type.
func (e *Engine) Unleased(t *Type, found ClaimedRows) (entries []processlog.QueueEntry) {
	for _, w := range found.Waiting {
		entries = append(entries, processlog.QueueEntry{BusinessType: t.Name, ID: w.ID, In: w.In})
	}
	for _, l := range found.Limited {
		entries = append(entries, processlog.QueueEntry{BusinessType: t.Name, ID: l.ID, In: l.In})
	}
	for _, r := range found.Refused {
		entries = append(entries, processlog.QueueEntry{BusinessType: t.Name, ID: r.ID, In: e.Refusals.PauseLeft(t.Name, r.ID)})
	}
	for i := range found.Skipped {
		entries = append(entries, processlog.QueueEntry{BusinessType: found.Skipped[i].BusinessType, ID: found.Skipped[i].ID, In: SkippedRetry})
	}
	return entries
}

// RunClaimed runs claimed entries. The result blocked is the number of entries that may not run, because other entries
// of their ordering keys block them.
func (e *Engine) RunClaimed(found ClaimedRows) (blocked int) {
	if len(found.Mine) > 0 {
		blocked, _ = e.startClaimed(found, 0)
	}
	return blocked
}

// FailAttempt ends an attempt with an error without calling a handler.
func (e *Engine) FailAttempt(a *Attempt, err error) {
	e.store(pendingOutcome{attempt: a, outcome: a.Type.OutcomeOf(&a.Row, err, nil)}, Result{Err: err})
}
