package engine

import (
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/processlog"
)

// freshEntry is an entry whose transaction has just ended.
type freshEntry struct {
	id           processlog.ID // zero: still to be asked for by key
	key          processlog.IdempotencyKey
	businessType string
	token        processlog.Token // the lease of the insert's
	reservation  Reservation      // nil unless inserted with a lease
	slot         bool             // it has taken one, for itself and for those that share its call
	watched      bool             // the end of its transaction was seen, and not only told
	orphaned     bool             // it was inserted with a lease, has no slot any more, and waits for its id to have the lease released
	failed       int              // how often its id could not be asked for
	due          time.Time        // by this process's monotonic clock, for the queue only
}

// waitBound is how many entries may wait in memory. The reconciler finds further ones.
const waitBound = 100_000

// intake is the ways of an entry after its commit. Callers hand over and go on; what piles up while a statement runs is
// the next statement.
type intake struct {
	*Base
	types            *types
	claimSchedule    *claimSchedule
	source           *source
	missing          *missing
	rollbackDetector *rollbackDetector
	claims           *claims
	settler          *settler
	dispatcher       *dispatcher

	resolve groupcommit.Batcher[freshEntry] // ids of a bulk insert are asked for
	verify  groupcommit.Batcher[freshEntry] // inserted with a lease rows are read back
	claim   groupcommit.Batcher[freshEntry] // fresh rows are claimed by id
}

// withBatchers makes what it hands entries to.
func (in *intake) withBatchers() *intake {
	// What is read back or claimed holds slots, which bound it. What is resolved need hold none, and so has a Bound.
	in.resolve.Max, in.resolve.Workers, in.resolve.Bound, in.resolve.Flush = processlog.MaxRows, 1, waitBound, in.resolveFresh
	in.verify.Max, in.verify.Workers, in.verify.Flush = processlog.MaxRows, 2, in.verifyFresh
	in.claim.Max, in.claim.Workers, in.claim.Flush = processlog.MaxRows, 1, in.claimFresh
	return in
}

// route sends entries whose transaction has committed on their way: inserted with a lease to be read back, due now
// and with a free slot here to be claimed by id, all others to the queue. It keeps fresh.
func (in *intake) route(fresh []freshEntry) {
	enqueue := fresh[:0]
	var verify, claim []freshEntry
	var calls freshCalls
	for _, f := range fresh {
		t := in.types.accepting(f.businessType)
		switch {
		case f.orphaned:
			in.claims.pendingReleases.later(f.token, processlog.QueueEntry{BusinessType: f.businessType, ID: f.id})
		case f.reservation == nil && t == nil, f.reservation == nil && time.Until(f.due) > 0:
			// Nobody to run it here, or not now: the queue tells whoever has it when it is due.
			enqueue = append(enqueue, f)
		case f.id.IsZero():
			in.resolveOrDrop(f)
		case f.reservation != nil:
			verify = append(verify, f)
		// With no slot, or outcomes waiting, it is the queue's: whoever is free claims it.
		case t.BatchWait == 0 && !in.settler.behind() && calls.seat(t, &f):
			claim = append(claim, f)
		default:
			enqueue = append(enqueue, f)
		}
	}
	in.verify.Add(verify...)
	in.claim.Add(claim...)
	// Those are read back by nobody here until they are due: the next check of the log asks whether they are there.
	in.rollbackDetector.recorded(enqueue)
	in.enqueueFresh(enqueue)
}

// freshCalls are calls that several entries of one transaction share.
type freshCalls struct {
	t    *Type
	left int // seats
}

// seat gives an entry its place in a call; the first of each takes the slot.
func (c *freshCalls) seat(t *Type, f *freshEntry) bool {
	if c.t == t && c.left > 0 {
		c.left--
		return true
	}
	if f.slot = t.slots.TakeRecorded(); f.slot {
		c.t, c.left = t, t.Seats()-1
	}
	return f.slot
}

// enqueueFresh tells the queue of entries that come due within its horizon; the reconciler tells it of the
// rest in time.
func (in *intake) enqueueFresh(fresh []freshEntry) {
	items := make([]processlog.QueueEntry, 0, len(fresh))
	for _, f := range fresh {
		wait := time.Until(f.due)
		switch {
		case !in.source.Wants(f.businessType, wait):
		case f.id.IsZero():
			in.resolveOrDrop(f)
		default:
			items = append(items, processlog.QueueEntry{BusinessType: f.businessType, ID: f.id, In: wait})
		}
	}
	in.source.Enqueue(items)
}

func (in *intake) resolveOrDrop(f freshEntry) {
	if !in.resolve.Add(f) {
		in.giveBack(f) // more than anybody can work off: the database keeps it, and the reconciler finds it
	}
}

// giveBack frees the slot of an entry that will not run from here.
func (in *intake) giveBack(f freshEntry) {
	if f.reservation != nil {
		in.claimSchedule.cancel(f.businessType, f.reservation)
	}
}

// resolveFresh asks for the ids of a bulk insert, now that its rows are committed.
func (in *intake) resolveFresh(batch []freshEntry) {
	keys := make([]processlog.IdempotencyKey, len(batch))
	for i, f := range batch {
		keys[i] = f.key
	}
	ctx, cancel := in.Statement()
	defer cancel()
	ids, err := in.Store.IDs(ctx, nil, keys)
	in.Saw(ProblemReadBack, err)
	if err != nil {
		in.unresolved(batch)
		return
	}
	var found, unfound []freshEntry
	for _, f := range batch {
		if f.id = ids[f.key]; f.id.IsZero() {
			in.giveBack(f) // the reconciler's, if it is there
			unfound = append(unfound, f)
			continue
		}
		found = append(found, f)
	}
	failpoint.Reach(failpoint.IDsResolved)
	// The same ways once more, now that they have a name.
	in.route(found)
	// Only an answer says that something is not there.
	in.missing.report(unfound)
}

// unresolved deals with entries whose ids the database did not tell. The reconciler finds those without a lease. A lease that an
// entry was inserted with has run nothing, and left to its end it would count as lost: its id is asked for until it is told.
func (in *intake) unresolved(batch []freshEntry) {
	var leased []freshEntry
	failures := 0
	for _, f := range batch {
		in.giveBack(f)
		if f.reservation == nil && !f.orphaned {
			continue
		}
		f.reservation, f.orphaned = nil, true
		f.failed++
		failures = max(failures, f.failed)
		leased = append(leased, f)
	}
	if len(leased) > 0 && in.Wait(delay(settleBackoff, failures)) {
		in.resolve.Add(leased...)
	}
}

// verifyFresh reads inserted with a lease rows back. What the caller inserted is not proof that it was committed: a
// savepoint may have been rolled back, a deadlock swallowed. Only what is there, untouched, is run.
func (in *intake) verifyFresh(batch []freshEntry) {
	ids := make([]processlog.ID, len(batch))
	for i, f := range batch {
		ids[i] = f.id
	}
	ctx, cancel := in.Statement()
	defer cancel()
	asked := time.Now() // before the question: the leases run while its answer is on its way (G16)
	rows, err := in.Store.Load(ctx, ids)
	in.Saw(ProblemReadBack, err)
	in.rollbackDetector.sawRead(rows, asked)
	failpoint.Reach(failpoint.EntryReadBack)
	if err != nil {
		in.disown(batch)
		return
	}
	byID := make(map[processlog.ID]*processlog.Row, len(rows))
	for i := range rows {
		byID[rows[i].ID] = &rows[i]
	}
	var unfound []freshEntry
	for _, f := range batch {
		in.startFresh(f, byID[f.id], asked)
		if byID[f.id] == nil {
			unfound = append(unfound, f)
		}
	}
	in.missing.report(unfound)
}

// disown gives back the slots and the leases of entries that were inserted with a lease and cannot be read back. The lease has run
// nothing, and left to its end it would count as lost.
func (in *intake) disown(batch []freshEntry) {
	for _, f := range batch {
		in.giveBack(f)
		in.claims.pendingReleases.later(f.token, processlog.QueueEntry{BusinessType: f.businessType, ID: f.id})
	}
}

// startFresh runs a verified row, which was asked for when asked says. One that was committed too late for its lease, or
// whose reservation lapsed, is claimed anew.
func (in *intake) startFresh(f freshEntry, row *processlog.Row, asked time.Time) {
	t := in.types.named(f.businessType)
	// Any write since the INSERT, a claim, a cancellation, makes it another's; and so does a token that is not this
	// call's, under an id that was given out again (G2).
	if row == nil || row.Version != 0 || row.Token != f.token || row.State != processlog.Pending {
		in.giveBack(f)
		return
	}
	// A lease from the insert runs from the INSERT. What a late commit has left of it may end before it is renewed, and another
	// process would run the entry, too (G16).
	intime := time.Until(asked.Add(row.LeaseLeft)) >= t.Lease/2
	switch slot := f.reservation.Use(1); {
	case !in.types.accepts.Load(), in.rollbackDetector.stopped() != nil:
		// Nothing may start any more, or the database has gone back (G15, G19). A lease left behind would count as lost.
		if slot {
			in.claimSchedule.free(t, 1)
		}
		in.claims.release(f.token, processlog.QueueEntry{BusinessType: t.Name, ID: row.ID})
	case slot && intime:
		_ = in.dispatcher.startClaimed(t, []processlog.Row{*row}, asked, 0)
	case slot || t.slots.TakeRecorded():
		// Claimed under the token it was inserted with, it is not counted again: that lease has run nothing.
		f.slot = true
		in.claim.Add(f)
	default:
		in.claims.release(f.token, processlog.QueueEntry{BusinessType: t.Name, ID: row.ID})
	}
}

// claimFresh claims committed entries by id, for the slots that they hold.
func (in *intake) claimFresh(batch []freshEntry) {
	byType := grouped.By(batch, func(f freshEntry) string { return f.businessType })
	for _, name := range byType.Order {
		list := byType.Groups[name]
		want := make([]processlog.Wanted, len(list))
		calls := 0
		for i, f := range list {
			if f.slot {
				calls++
			}
			want[i] = processlog.Wanted{ID: f.id, Token: f.token}
			if f.reservation == nil {
				want[i].Token = processlog.Token{} // not inserted with a lease: nothing of ours to take over
			}
		}
		t := in.types.named(name)
		if list, want = in.leaveBlocked(t, list, want); len(want) == 0 {
			in.claimSchedule.free(t, calls)
			continue // the entry in front tells when it has ended
		}
		found, err := in.claims.claim(t, want, calls)
		if err != nil {
			in.claimSchedule.free(t, calls)
			in.disownLeased(list)
			continue // the reconciler finds the others
		}
		failpoint.Reach(failpoint.FreshClaimed)
		in.claimSchedule.free(t, calls-t.calls(found.Mine))
		in.enqueueWaiting(t, found.Claimed)
		in.leaveSpare(list, found.spare)
		_ = in.dispatcher.startClaimed(t, found.Mine, found.asked, 0) // what is put back is the scanner's from here on
		in.missing.report(slices.DeleteFunc(list, func(f freshEntry) bool { return !slices.Contains(found.Gone, f.id) }))
	}
}

// leaveBlocked leaves out entries that wait for another of their key. Where that cannot be told, it is found out after the
// claim.
func (in *intake) leaveBlocked(t *Type, list []freshEntry, want []processlog.Wanted) ([]freshEntry, []processlog.Wanted) {
	if t.finder() == nil {
		return list, want
	}
	ids := make([]processlog.ID, len(want))
	for i := range want {
		ids[i] = want[i].ID
	}
	ctx, cancel := in.Statement()
	defer cancel()
	blocked, _ := t.blocked(ctx, ids)
	return slices.DeleteFunc(list, func(f freshEntry) bool { return slices.Contains(blocked, f.id) }),
		slices.DeleteFunc(want, func(w processlog.Wanted) bool { return slices.Contains(blocked, w.ID) })
}

// disownLeased gives back the leases that entries were inserted with, after a claim that failed. If the claim has come about all the
// same, the lease is the claim's, which gives it back itself.
func (in *intake) disownLeased(list []freshEntry) {
	for _, f := range list {
		if f.reservation != nil {
			in.claims.pendingReleases.later(f.token, processlog.QueueEntry{BusinessType: f.businessType, ID: f.id})
		}
	}
}

// leaveSpare leaves to others what has found no room in a call. A lease that it was inserted with has run nothing.
func (in *intake) leaveSpare(list []freshEntry, spare []processlog.ID) {
	for _, f := range list {
		if !slices.Contains(spare, f.id) {
			continue
		}
		entry := processlog.QueueEntry{BusinessType: f.businessType, ID: f.id}
		if f.reservation != nil {
			in.claims.release(f.token, entry)
		} else {
			in.source.Enqueue([]processlog.QueueEntry{entry})
		}
	}
}

// enqueueWaiting tells the queue of entries that could not be claimed yet.
func (in *intake) enqueueWaiting(t *Type, found processlog.Claimed) {
	var items []processlog.QueueEntry
	for _, w := range found.Waiting {
		items = append(items, processlog.QueueEntry{BusinessType: t.Name, ID: w.ID, In: w.In})
	}
	for _, r := range found.Rejected {
		items = append(items, processlog.QueueEntry{BusinessType: t.Name, ID: r.ID, In: in.claims.refusals.in(t.Name, r.ID)})
	}
	for _, r := range found.Refused {
		items = append(items, processlog.QueueEntry{BusinessType: r.BusinessType, ID: r.ID, In: RefusedRetry})
	}
	in.source.Enqueue(items)
}
