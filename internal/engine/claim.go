package engine

import (
	"context"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/refusals"
	"github.com/compensator-go/compensator/processlog"
)

// RefusedRetry is the delay after which the queue offers an entry again that must not run in this process now. Examples
// are a suspect, an entry with a pending release, and a blocked entry.
const RefusedRetry = time.Second

// ClaimedRows is the result of a claim. Each handler call of the rows in Mine holds a slot.
type ClaimedRows struct {
	processlog.Claimed
	Type        *Type
	SentAt      time.Time       // when the claim statement was sent; the leases run from then or from a later time
	WithoutCall []processlog.ID // claimable entries for which no call was left
}

// claim leases wanted entries of a type in the database. It takes as many as fit into the given number of calls. The
// caller starts them.
func (e *Engine) claim(t *Type, wanted []processlog.Wanted, calls int) (ClaimedRows, error) {
	return e.claimRows(t, wanted, calls, false)
}

// claimRows works like claim. If stuckOnly is set, it leases only entries on which a handler of this process is stuck.
func (e *Engine) claimRows(t *Type, wanted []processlog.Wanted, calls int, stuckOnly bool) (ClaimedRows, error) {
	if err := e.HoldReason(); err != nil {
		return ClaimedRows{}, err
	}
	wanted, pending := e.Releases.WithoutPending(wanted, RefusedRetry)
	wanted, refused := e.Refusals.WithoutPaused(t.Name, wanted)
	if len(wanted) == 0 {
		return ClaimedRows{Claimed: processlog.Claimed{Waiting: pending, Rejected: refused}, Type: t}, nil
	}
	p := picker{t: t, holdings: e.holdings, wanted: wanted, callsLeft: calls, stuckOnly: stuckOnly}
	token := e.LeaseToken()
	ctx, cancel := e.Statement()
	defer cancel()
	claim := e.Store.Claim
	if t.claimer != nil {
		claim = t.claimer
	}
	sentAt := time.Now() // Read the clock before the claim. The leases already run while the answer is on its way (G16).
	found, err := claim(ctx, wanted, token, t.Lease, p.accept)
	failpoint.Reach(failpoint.ClaimCommitted)
	e.NoteResult(problemClaim, err)
	if err == nil {
		err = e.watcher.Claimed(found.Mine, sentAt)
	} else {
		e.watcher.Failed()
	}
	if err != nil {
		// The claim may have committed although it returned an error. Run nothing, and release the leases it may have
		// taken. A lease that ends by itself counts as lost.
		p.reportUnclaimedSuspects(nil)
		e.Releases.ReleaseUnknown(token, wanted)
		return ClaimedRows{}, err
	}
	p.reportUnclaimedSuspects(found.Mine)
	e.noteRefusedClaims(t, found)
	found = p.setAsideCounted(found)
	found.Waiting = append(found.Waiting, pending...)
	found.Rejected = append(found.Rejected, refused...)
	// The entries without a seat could have been claimed, so they do not count as refused.
	found.Refused = slices.DeleteFunc(found.Refused, func(row processlog.Row) bool { return slices.Contains(p.withoutSeat, row.ID) })
	return ClaimedRows{found, t, sentAt, p.withoutSeat}, nil
}

// noteRefusedClaims reports the entries that the database refuses to lease. It forgets earlier refusals of entries that are
// leased or gone now.
func (e *Engine) noteRefusedClaims(t *Type, found processlog.Claimed) {
	e.Refusals.Note(refusals.Claim, t.Name, found.Rejected)
	e.Refusals.Accepted(refusals.Claim, t.Name, found.Gone...)
	for i := range found.Mine {
		e.Refusals.Accepted(refusals.Claim, t.Name, found.Mine[i].ID)
	}
}

// wantedByID returns the ids as wanted entries without a lease of this process.
func wantedByID(ids []processlog.ID) []processlog.Wanted {
	wanted := make([]processlog.Wanted, len(ids))
	for i, id := range ids {
		wanted[i] = processlog.Wanted{ID: id}
	}
	return wanted
}

// picker decides for each claimable row whether the claim takes it. It takes only rows that this process can
// run, and rows whose lost lease it must count. It admits few suspects at a time. A suspect is an entry that may have
// crashed a process. If one suspect crashes this process, the leases of all admitted suspects count as lost, even of
// those that never ran.
//
// The store calls accept while it holds the row locks. accept therefore reads only memory and does not block.
type picker struct {
	t           *Type
	holdings    *holdings
	wanted      []processlog.Wanted
	callsLeft   int                 // calls that may still begin
	seatsLeft   [sharingClasses]int // free seats in the shared calls that this claim already fills
	stuckOnly   bool                // take only entries on which a handler of this process is stuck
	withoutSeat []processlog.ID     // entries that came when no seat was left
	suspects    []processlog.Row    // accepted rows that have lost leases
	countedOnly []processlog.ID     // entries claimed only to count a lost lease, not to run
}

func (p *picker) accept(row *processlog.Row) bool {
	// Check for a free seat first. A suspect without a seat must not take a place in quarantine.
	class := p.t.sharingClass(row.State, p.lostLeases(row))
	if p.callsLeft == 0 && p.seatsLeft[class] == 0 {
		p.withoutSeat = append(p.withoutSeat, row.ID)
		return false
	}
	if row.BusinessType != p.t.Name || p.t.Paused() || row.State == processlog.Compensating && !p.t.compensates() || !p.mayClaim(row) {
		return false
	}
	p.takeSeat(class)
	return true
}

// takeSeat takes a seat for an entry. The seat is in a shared call that this claim already fills, or in a new call.
func (p *picker) takeSeat(class SharingClass) {
	switch {
	case p.seatsLeft[class] > 0:
		p.seatsLeft[class]--
		return
	case class != NotShared:
		p.seatsLeft[class] = p.t.Seats() - 1
	}
	p.callsLeft--
}

// mayClaim reports whether this process may claim a row.
//
//   - An entry that this process holds is skipped.
//   - An entry on which a handler of this process is stuck is left to other processes for one lease time. After that it
//     is claimed and counted, but not run.
//   - An entry that has lost three leases is also claimed only to be counted. This leaves one more lease time to a
//     process that has a success to store and cannot reach the database.
//   - An entry that has lost more leases is claimed to be dead-lettered.
func (p *picker) mayClaim(row *processlog.Row) bool {
	heldAttempt, stuck := p.holdings.attemptOf(row)
	switch {
	// countStuck claims without a slot, because a stuck entry does not run. The handler has returned meanwhile, so this
	// entry would run.
	case p.stuckOnly && !stuck:
		return false
	// The entry runs here already, or its success waits to be stored (G8, G16). A stuck entry is left to other processes
	// for one lease time. That time runs from the end of its lease or from its due time, whichever is later.
	case heldAttempt != nil && !stuck, stuck && min(-row.LeaseLeft, -row.DueIn) < p.t.Lease:
		return false
	// The claim dead-letters this entry without running it, so it needs no place in quarantine.
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

// lostLeases returns how many consecutive leases of the row ended without an outcome. LostLeases does the same for a row
// after its claim. A lease that this process inserted the entry with and now takes over has not been lost, so it does
// not count.
func (p *picker) lostLeases(row *processlog.Row) int {
	if row.Version == 0 && row.DeliveryCount > 0 && row.Token != (processlog.Token{}) && slices.Contains(p.wanted, processlog.Wanted{ID: row.ID, Token: row.Token}) {
		return row.DeliveryCount - 1
	}
	return row.DeliveryCount
}

// reportUnclaimedSuspects tells the admissions which accepted suspects were not claimed.
func (p *picker) reportUnclaimedSuspects(mine []processlog.Row) {
	for i := range p.suspects {
		s := &p.suspects[i]
		if !slices.ContainsFunc(mine, func(row processlog.Row) bool { return row.ID == s.ID }) {
			p.t.suspectDone(s, p.lostLeases(s), NotClaimed)
		}
	}
}

// setAsideCounted does not run the entries whose lost lease this claim only counts. It moves them from Mine to Waiting until their
// new lease ends. In this time another process can store their success. The claim shows that the database accepts
// writes, so a success that is still missing at the end is not missing because of the database.
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

// ClaimWithSlots claims entries for a number of calls whose slots the caller holds. It frees the slots that are not
// needed. Entries that are not due yet, or that must not run here now, go to the source. The caller handles the entries in
// WithoutCall.
func (e *Engine) ClaimWithSlots(t *Type, wanted []processlog.Wanted, calls int) (ClaimedRows, error) {
	found, err := e.claim(t, wanted, calls)
	e.FreeSlots(t, calls-t.callsOfRows(found.Mine))
	if err != nil {
		return found, err
	}
	var wait []processlog.QueueEntry
	for _, w := range found.Waiting {
		wait = append(wait, processlog.QueueEntry{BusinessType: t.Name, ID: w.ID, In: w.In})
	}
	for _, l := range found.Limited {
		wait = append(wait, processlog.QueueEntry{BusinessType: t.Name, ID: l.ID, In: l.In})
	}
	for _, r := range found.Rejected {
		wait = append(wait, processlog.QueueEntry{BusinessType: t.Name, ID: r.ID, In: e.Refusals.PauseLeft(t.Name, r.ID)})
	}
	for _, r := range found.Refused {
		wait = append(wait, processlog.QueueEntry{BusinessType: r.BusinessType, ID: r.ID, In: RefusedRetry})
	}
	e.source.Enqueue(wait)
	return found, nil
}

// RunClaimed runs the claimed entries. It returns how many of them turned out to be blocked. The scanner finds those later.
func (e *Engine) RunClaimed(found ClaimedRows) (blocked int) {
	if len(found.Mine) > 0 {
		blocked, _ = e.startClaimed(found, 0)
	}
	return blocked
}

// Enqueue hands entries to the source.
func (e *Engine) Enqueue(entries ...processlog.QueueEntry) { e.source.Enqueue(entries) }

// FailAttempt ends an attempt with an error without calling a handler.
func (e *Engine) FailAttempt(a *Attempt, err error) {
	outcome := e.withFailedAttempt(a, Result{Err: err}, a.Type.OutcomeOf(&a.Row, err, nil))
	e.outcomes.ordinary.Add(settlement{attempt: a, outcome: outcome})
}

// Move makes an entry due in the source after the given time.
func (e *Engine) Move(businessType string, id processlog.ID, in time.Duration) {
	e.source.Move(processlog.QueueEntry{BusinessType: businessType, ID: id, In: in})
}

// PingQueue asks the queue whether it answers. See Source.Ping.
func (e *Engine) PingQueue(ctx context.Context) (answer func() error) { return e.source.Ping(ctx) }

// SourceScope says whose entries the source reports now: see Scope.
func (e *Engine) SourceScope() Scope { return e.source.Scope() }
