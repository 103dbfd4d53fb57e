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
	id           processlog.ID // zero if the id must still be read from the database by key
	key          processlog.IdempotencyKey
	businessType string
	token        processlog.Token // token of the lease that the entry was inserted with
	reservation  Reservation      // nil unless inserted with a lease
	slot         bool             // holds a slot, perhaps for several entries that share one call
	watched      bool             // this process saw the end of the transaction itself, without a report from the caller
	orphaned     bool             // inserted with a lease but without a slot now; its lease is released once its id is known
	failed       int              // failed reads of its id
	due          time.Time        // by this process's monotonic clock; only for the queue
}

// waitBound is how many entries may wait in memory. The reconciler finds any others.
const waitBound = 100_000

// intake handles entries after their commit. Callers hand entries over and continue. Entries that arrive while a
// statement runs share the next statement.
type intake struct {
	*Base
	types         *types
	claimSchedule *claimSchedule
	source        *source
	missing       *missing
	claims        *claims
	settler       *settler
	dispatcher    *dispatcher

	resolve groupcommit.Batcher[freshEntry] // reads the ids of entries from a bulk insert
	verify  groupcommit.Batcher[freshEntry] // reads back rows that were inserted with a lease
	claim   groupcommit.Batcher[freshEntry] // claims fresh rows by id
}

// withBatchers configures the batchers and returns in.
func (in *intake) withBatchers() *intake {
	// The slots limit how many entries are read back or claimed. Entries whose ids are read may hold no slot, so resolve
	// has its own Bound.
	in.resolve.Max, in.resolve.Workers, in.resolve.Bound, in.resolve.Flush = processlog.MaxRows, 1, waitBound, in.resolveFresh
	in.verify.Max, in.verify.Workers, in.verify.Flush = processlog.MaxRows, 2, in.verifyFresh
	in.claim.Max, in.claim.Workers, in.claim.Flush = processlog.MaxRows, 1, in.claimFresh
	return in
}

// route decides where entries go after their transaction has committed. It reuses the memory of fresh.
//
//   - Entries inserted with a lease are read back.
//   - Entries that are due now and get a free slot here are claimed by id.
//   - All others are enqueued.
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
			// This process does not run the type, or the entry is not due yet. The queue notifies a process that runs the
			// type when the entry is due.
			enqueue = append(enqueue, f)
		case f.id.IsZero():
			in.resolveOrDrop(f)
		case f.reservation != nil:
			verify = append(verify, f)
		// Claim here only with a free slot, and only if not too many outcomes wait to be stored. Otherwise the queue
		// offers the entry to all processes.
		case t.wait() == 0 && !in.settler.behind() && calls.seat(t, &f):
			claim = append(claim, f)
		default:
			enqueue = append(enqueue, f)
		}
	}
	in.verify.Add(verify...)
	in.claim.Add(claim...)
	in.sawRecorded(enqueue)
	in.enqueueFresh(enqueue)
}

// freshCalls counts the free seats of a call that several entries share.
type freshCalls struct {
	t    *Type
	left int // free seats
}

// seat gives an entry a seat in a call. The first entry of each call takes the slot.
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

// enqueueFresh enqueues entries that come due within the queue's horizon. The reconciler enqueues the others in time.
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
		in.giveBack(f) // too many wait already; the database has the entry, and the reconciler finds it
	}
}

// giveBack releases the reservation of an entry that will not run from here.
func (in *intake) giveBack(f freshEntry) {
	if f.reservation != nil {
		in.claimSchedule.cancel(f.businessType, f.reservation)
	}
}

// resolveFresh reads the ids of entries from a bulk insert, after their transaction has committed.
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
			in.giveBack(f) // if it exists, the reconciler finds it
			unfound = append(unfound, f)
			continue
		}
		found = append(found, f)
	}
	failpoint.Reach(failpoint.IDsResolved)
	// Route them again, now that their ids are known.
	in.route(found)
	// Report missing entries only here, where the database has answered.
	in.missing.report(unfound)
}

// unresolved handles entries whose ids could not be read. The reconciler finds those without a lease. An entry inserted
// with a lease has run nothing, but a lease that ends by itself counts as lost. Its id is therefore read again until
// the lease can be released.
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

// verifyFresh reads back rows that were inserted with a lease. The insert does not prove that the row was committed.
// The application may have rolled back to a savepoint or ignored a deadlock error. Only rows that exist and are
// unchanged run.
func (in *intake) verifyFresh(batch []freshEntry) {
	ids := make([]processlog.ID, len(batch))
	for i, f := range batch {
		ids[i] = f.id
	}
	ctx, cancel := in.Statement()
	defer cancel()
	asked := time.Now() // read the clock before the query, because the leases run while its answer is on its way (G16)
	rows, err := in.Store.Load(ctx, ids)
	in.Saw(ProblemReadBack, err)
	in.sawRead(rows, asked)
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

// disown releases the slots and leases of entries that were inserted with a lease and could not be read back. They have
// run nothing, but a lease that ends by itself counts as lost.
func (in *intake) disown(batch []freshEntry) {
	for _, f := range batch {
		in.giveBack(f)
		in.claims.pendingReleases.later(f.token, processlog.QueueEntry{BusinessType: f.businessType, ID: f.id})
	}
}

// startFresh runs an unchanged row that was read back. asked is the time just before the read. A row is claimed again
// if its lease is too short by now, or if its reservation lapsed.
func (in *intake) startFresh(f freshEntry, row *processlog.Row, asked time.Time) {
	t := in.types.named(f.businessType)
	// A write since the INSERT, such as a claim or a cancellation, means that the row is no longer this process's. A
	// different token means that the id was assigned again to another entry (G2).
	if row == nil || row.Version != 0 || row.Token != f.token || row.State != processlog.Pending {
		in.giveBack(f)
		return
	}
	// The lease runs from the INSERT. After a late commit it may end before it is renewed, and another process would run
	// the entry too (G16).
	intime := time.Until(asked.Add(row.LeaseLeft)) >= t.Lease/2
	switch slot := f.reservation.Use(1); {
	case !in.types.accepts.Load(), in.held() != nil:
		// Nothing may start any more (G15, G19). Release the lease, because a lease that ends by itself counts as lost.
		if slot {
			in.claimSchedule.free(t, 1)
		}
		in.claims.release(f.token, processlog.QueueEntry{BusinessType: t.Name, ID: row.ID})
	case slot && intime:
		_ = in.dispatcher.startClaimed(t, []processlog.Row{*row}, asked, 0)
	case slot || t.slots.TakeRecorded():
		// Claim it under the token it was inserted with. That lease has run nothing and does not count as lost.
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
				want[i].Token = processlog.Token{} // not inserted with a lease, so there is no lease to take over
			}
		}
		t := in.types.named(name)
		if list, want = in.leaveBlocked(t, list, want); len(want) == 0 {
			in.claimSchedule.free(t, calls)
			continue // the entries are enqueued when the earlier entries of their keys end
		}
		found, err := in.claims.claim(t, want, calls)
		if err != nil {
			in.claimSchedule.free(t, calls)
			in.disownLeased(list)
			continue // the reconciler finds those without a lease
		}
		failpoint.Reach(failpoint.FreshClaimed)
		in.claimSchedule.free(t, calls-t.calls(found.Mine))
		in.enqueueWaiting(t, found.Claimed)
		in.leaveSpare(list, found.spare)
		_ = in.dispatcher.startClaimed(t, found.Mine, found.asked, 0) // an error only means that entries were put back, and the scanner claims them later
		in.missing.report(slices.DeleteFunc(list, func(f freshEntry) bool { return !slices.Contains(found.Gone, f.id) }))
	}
}

// leaveBlocked leaves out blocked entries. If the check for blocked entries fails, it leaves out none. The dispatcher
// then finds the blocked entries after the claim.
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
	blocked, _ := t.Blocked(ctx, ids)
	return slices.DeleteFunc(list, func(f freshEntry) bool { return slices.Contains(blocked, f.id) }),
		slices.DeleteFunc(want, func(w processlog.Wanted) bool { return slices.Contains(blocked, w.ID) })
}

// disownLeased releases the leases that entries were inserted with, after a claim that failed. If the claim took effect
// anyway, it has replaced these leases, and the claim releases its own.
func (in *intake) disownLeased(list []freshEntry) {
	for _, f := range list {
		if f.reservation != nil {
			in.claims.pendingReleases.later(f.token, processlog.QueueEntry{BusinessType: f.businessType, ID: f.id})
		}
	}
}

// leaveSpare offers entries that found no seat in a call to all processes. It first releases a lease that the entry was
// inserted with, because that lease has run nothing.
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

// enqueueWaiting enqueues entries that could not be claimed yet.
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
