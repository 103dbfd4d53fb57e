// Package readback starts entries where they were recorded. It reserves slots for them, reads their ids and rows back after the
// commit, and claims them at once.
package readback

import (
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/processlog"
)

// waitBound is the maximum number of recorded entries that wait in memory until this process reads their ids. If more
// entries are recorded, the reconciler finds them in the database later.
const waitBound = 100_000

// Starter handles entries after their commit.
type Starter struct {
	e *engine.Engine

	idReads       groupcommit.Batcher[unresolvedEntry]
	verifications groupcommit.Batcher[engine.InsertedEntry] // batches of rows to read back, which were inserted with a lease
	claims        groupcommit.Batcher[claimRequest]         // batches of new rows to claim by id
}

type unresolvedEntry struct {
	engine.InsertedEntry
	// orphaned is true if the entry was inserted with a lease and no longer has its reserved slot. When the id of the
	// entry is known, the lease is released.
	orphaned    bool
	failedReads int
}

type claimRequest struct {
	engine.InsertedEntry
	// hasSlot is true if the request holds the slot of a handler call. If several entries share a call, only one of
	// their requests holds the slot.
	hasSlot bool
}

// Attach makes an engine start the entries that this process records.
func Attach(e *engine.Engine) *Starter {
	s := &Starter{e: e}
	// idReads needs a bound, because its entries may hold no slot. The other two batchers need no bound, because the
	// number of slots limits their entries.
	s.idReads.Max, s.idReads.Workers, s.idReads.Bound, s.idReads.Flush = processlog.MaxRows, 1, waitBound, s.resolveFresh
	s.verifications.Max, s.verifications.Workers, s.verifications.Flush = processlog.MaxRows, 2, s.verifyFresh
	s.claims.Max, s.claims.Workers, s.claims.Flush = processlog.MaxRows, 1, s.claimFresh
	h := &e.Hooks
	h.Reserve, h.Start, h.FindID = append(h.Reserve, s.reserve), append(h.Start, s.start), append(h.FindID, s.findID)
	e.Await(engine.WaitForClaims, &s.idReads, &s.verifications, &s.claims)
	return s
}

func (s *Starter) reserve(drafts []processlog.Draft) (reservations []engine.Reservation) {
	if s.e.OutcomesBacklogged() {
		return nil
	}
	for i := range drafts {
		d := &drafts[i]
		t := s.e.AcceptingType(d.BusinessType)
		if t == nil || t.IsOrdered() || d.Done || d.Delay > 0 || t.Linger() > 0 || s.e.OutcomesRefused(t) {
			continue
		}
		// An entry inserted with a lease runs alone. Several entries are claimed together instead, so that they share
		// a call.
		if len(drafts) > 1 && t.Seats() > 1 {
			t.Slots().Recorded()
			continue
		}
		reservation := t.Slots().Reserve(1)
		if reservation == nil {
			continue
		}
		if reservations == nil {
			reservations = make([]engine.Reservation, len(drafts))
		}
		reservations[i], d.Lease = reservation, t.Lease
	}
	return reservations
}

// start starts the recorded entries in the parameter fresh. It returns the entries that it has not started. The result
// overwrites the slice that the caller has passed as fresh.
func (s *Starter) start(fresh []engine.InsertedEntry) (toEnqueue []engine.InsertedEntry) {
	toEnqueue = fresh[:0]
	var toVerify []engine.InsertedEntry
	var toClaim []claimRequest
	var calls freshCalls
	for _, f := range fresh {
		t := s.e.AcceptingType(f.BusinessType)
		switch {
		case f.Reservation == nil && t == nil, f.Reservation == nil && time.Until(f.Due) > 0:
			toEnqueue = append(toEnqueue, f)
		case f.ID.IsZero():
			s.findID(f)
		case f.Reservation != nil:
			toVerify = append(toVerify, f)
		// Claim the entry at once if two conditions hold:
		//
		//   - The handler call for this entry need not wait for further entries.
		//   - The database can store outcomes now. Only a few outcomes wait to be stored, and the database refuses
		//     none.
		case t.Linger() == 0 && !s.e.OutcomesBacklogged() && !s.e.OutcomesRefused(t):
			if seated, slot := calls.takeSeat(t); seated {
				toClaim = append(toClaim, claimRequest{f, slot})
			} else {
				toEnqueue = append(toEnqueue, f)
			}
		default:
			toEnqueue = append(toEnqueue, f)
		}
	}
	s.verifications.Add(toVerify...)
	s.claims.Add(toClaim...)
	return toEnqueue
}

type freshCalls struct {
	t         *engine.Type
	freeSeats int
}

func (c *freshCalls) takeSeat(t *engine.Type) (seated, slot bool) {
	if c.t == t && c.freeSeats > 0 {
		c.freeSeats--
		return true, false
	}
	if !t.Slots().TakeRecorded() {
		return false, false
	}
	c.t, c.freeSeats = t, t.Seats()-1
	return true, true
}

func (s *Starter) findID(f engine.InsertedEntry) bool {
	if !s.idReads.Add(unresolvedEntry{InsertedEntry: f}) {
		s.cancelReservation(f) // The reconciler finds the entry.
	}
	return true
}

func (s *Starter) cancelReservation(f engine.InsertedEntry) {
	s.e.CancelReservation(f.BusinessType, f.Reservation)
}

// releaseLater releases the lease of the entry f in the background. Without the release, the lease would expire. An
// expired lease counts as lost, although no handler has run under it.
func (s *Starter) releaseLater(f engine.InsertedEntry) {
	s.e.Releases.ReleaseLater(f.Token, queueEntry(f))
}

func queueEntry(f engine.InsertedEntry) processlog.QueueEntry {
	return processlog.QueueEntry{BusinessType: f.BusinessType, ID: f.ID}
}

func (s *Starter) resolveFresh(batch []unresolvedEntry) {
	keys := make([]processlog.IdempotencyKey, len(batch))
	for i := range batch {
		keys[i] = batch[i].IdempotencyKey
	}
	ctx, cancel := s.e.Statement()
	defer cancel()
	ids, err := s.e.Store.IDs(ctx, nil, keys)
	s.e.NoteResult(engine.ProblemReadBack, err)
	if err != nil {
		s.retryUnresolved(batch)
		return
	}
	var found, unfound, orphaned []engine.InsertedEntry
	for _, f := range batch {
		f.ID = ids[f.IdempotencyKey]
		switch {
		case f.ID.IsZero():
			s.cancelReservation(f.InsertedEntry) // If the entry exists, the reconciler finds it.
			unfound = append(unfound, f.InsertedEntry)
		case f.orphaned:
			orphaned = append(orphaned, f.InsertedEntry)
		default:
			found = append(found, f.InsertedEntry)
		}
	}
	failpoint.Reach(failpoint.IDsResolved)
	for _, f := range orphaned {
		s.releaseLater(f)
	}
	s.e.StartRecorded(found)
	// Report missing entries only here, because at this point the database has answered that they do not exist.
	s.reportUnfound(unfound)
}

// retryUnresolved handles a batch whose ids could not be read. The reconciler finds the entries of the batch that have
// no lease. For entries with a lease, retryUnresolved requests another read of their ids. The lease of an entry can
// only be released when its id is known.
func (s *Starter) retryUnresolved(batch []unresolvedEntry) {
	var leased []unresolvedEntry
	failures := 0
	for _, f := range batch {
		s.cancelReservation(f.InsertedEntry)
		if f.Reservation == nil && !f.orphaned {
			continue
		}
		f.Reservation, f.orphaned = nil, true
		f.failedReads++
		failures = max(failures, f.failedReads)
		leased = append(leased, f)
	}
	if len(leased) > 0 && s.e.Wait(engine.Backoff(failures)) {
		s.idReads.Add(leased...)
	}
}

// verifyFresh reads rows that were inserted with a lease, and starts the rows that exist and are unchanged. A row can
// be missing if the application rolled back to a savepoint or ignored a deadlock error.
func (s *Starter) verifyFresh(batch []engine.InsertedEntry) {
	ids := make([]processlog.ID, len(batch))
	for i := range batch {
		ids[i] = batch[i].ID
	}
	ctx, cancel := s.e.Statement()
	defer cancel()
	// Read the clock before the query. The leases already run while the answer is on its way, so the remaining times in
	// the answer count from this moment. See promise G16.
	sentAt := time.Now()
	rows, err := s.e.Store.Load(ctx, ids)
	s.e.NoteResult(engine.ProblemReadBack, err)
	s.e.WatchRead(rows, sentAt)
	failpoint.Reach(failpoint.EntryReadBack)
	if err != nil {
		for _, f := range batch {
			s.cancelReservation(f)
			s.releaseLater(f)
		}
		return
	}
	byID := make(map[processlog.ID]*processlog.Row, len(rows))
	for i := range rows {
		byID[rows[i].ID] = &rows[i]
	}
	var unfound []engine.InsertedEntry
	ready := make([]processlog.Row, 0, len(rows))
	for _, f := range batch {
		row := byID[f.ID]
		if s.mayStart(f, row, sentAt) {
			ready = append(ready, *row)
		}
		if row == nil {
			unfound = append(unfound, f)
		}
	}
	s.startRows(ready, sentAt)
	s.reportUnfound(unfound)
}

// startRows runs claimed rows. The caller has already taken slots for these rows.
func (s *Starter) startRows(rows []processlog.Row, sentAt time.Time) {
	for name, group := range grouped.Each(rows, func(row processlog.Row) string { return row.BusinessType }) {
		t, callSize := s.e.TypeNamed(name), len(group)
		if t.Seats() > 1 {
			callSize = 1 // Each row holds a slot of its own.
		}
		for chunk := range slices.Chunk(group, callSize) {
			s.e.RunClaimed(engine.ClaimedRows{Claimed: processlog.Claimed{Mine: chunk}, Type: t, SentAt: sentAt})
		}
	}
}

// mayStart reports whether the caller may start the entry f now. The argument row is the row of f, and sentAt is the
// time just before the row was read. If the lease of the row is too short by now, mayStart requests another claim of
// the row. It also requests this claim if the reservation lapsed and a slot is free.
func (s *Starter) mayStart(f engine.InsertedEntry, row *processlog.Row, sentAt time.Time) bool {
	t := s.e.TypeNamed(f.BusinessType)
	// This process does not hold the row any more, or another entry has the id now. See promise G2.
	if row == nil || row.Version != 0 || row.Token != f.Token || row.State != processlog.Pending {
		s.cancelReservation(f)
		return false
	}
	// inTime is true if at least half of the lease is left. After a late commit, less may be left. The lease could then
	// end before it is renewed, and another process would run the entry too. See promise G16.
	inTime := time.Until(sentAt.Add(row.LeaseLeft)) >= t.Lease/2
	switch slot := f.Reservation.Use(1); {
	case !s.e.Accepts(), s.e.HoldReason() != nil:
		// This process stops, or a loss in the database keeps it from starting entries. Release the lease, because a
		// lease that expires would count as lost. See promises G15 and G19.
		if slot {
			s.e.FreeSlots(t, 1)
		}
		s.e.Releases.Release(f.Token, queueEntry(f))
	case slot && inTime:
		return true
	case slot || t.Slots().TakeRecorded():
		// Claim the row under the token of its insert, so that the insert's lease does not count as lost.
		s.claims.Add(claimRequest{f, true})
	default:
		s.e.Releases.Release(f.Token, queueEntry(f))
	}
	return false
}

func (s *Starter) claimFresh(batch []claimRequest) {
	for name, list := range grouped.Each(batch, func(f claimRequest) string { return f.BusinessType }) {
		s.claimType(s.e.TypeNamed(name), list)
	}
}

func (s *Starter) claimType(t *engine.Type, list []claimRequest) {
	wanted := make([]processlog.Wanted, len(list))
	calls := 0
	for i, f := range list {
		if f.hasSlot {
			calls++
		}
		wanted[i] = processlog.Wanted{ID: f.ID}
		if f.Reservation != nil {
			wanted[i].Token = f.Token // Take over the lease that the entry was inserted with.
		}
	}
	if list, wanted = s.withoutBlocked(t, list, wanted); len(wanted) == 0 {
		s.e.FreeSlots(t, calls)
		return // All entries are blocked. When the earlier entry of a key ends, the blocked entry is enqueued.
	}
	claimed, err := s.e.ClaimWithSlots(t, wanted, calls)
	if err != nil {
		s.releaseInsertLeases(list)
		return // The reconciler finds the entries without a lease.
	}
	failpoint.Reach(failpoint.FreshClaimed)
	s.returnSpare(list, claimed.WithoutCall)
	s.e.RunClaimed(claimed)
	var missing []engine.InsertedEntry
	for _, f := range list {
		if slices.Contains(claimed.Gone, f.ID) {
			missing = append(missing, f.InsertedEntry)
		}
	}
	s.reportUnfound(missing)
}

// withoutBlocked returns list and wanted without the entries that an earlier entry of their key blocks. If the check
// for blocked entries fails, withoutBlocked removes nothing. Then the engine finds the blocked entries after the claim:
// see engine.Order.Separate.
func (s *Starter) withoutBlocked(t *engine.Type, list []claimRequest, wanted []processlog.Wanted) ([]claimRequest, []processlog.Wanted) {
	if !t.IsOrdered() {
		return list, wanted
	}
	ids := make([]processlog.ID, len(wanted))
	for i := range wanted {
		ids[i] = wanted[i].ID
	}
	ctx, cancel := s.e.Statement()
	defer cancel()
	blocked, _ := t.Order().Blocked(ctx, ids)
	return slices.DeleteFunc(list, func(f claimRequest) bool { return slices.Contains(blocked, f.ID) }),
		slices.DeleteFunc(wanted, func(w processlog.Wanted) bool { return slices.Contains(blocked, w.ID) })
}

// releaseInsertLeases releases the leases from the inserts after a claim has failed. A claim may take effect in spite
// of an error. Then it has replaced these leases, and the release changes nothing.
func (s *Starter) releaseInsertLeases(list []claimRequest) {
	for _, f := range list {
		if f.Reservation != nil {
			s.releaseLater(f.InsertedEntry)
		}
	}
}

// returnSpare handles the entries in spare, for which no handler call was left. If such an entry has a lease from its
// insert, returnSpare releases this lease. It enqueues the other entries.
func (s *Starter) returnSpare(list []claimRequest, spare []processlog.ID) {
	for _, f := range list {
		switch {
		case !slices.Contains(spare, f.ID):
		case f.Reservation != nil:
			s.e.Releases.Release(f.Token, queueEntry(f.InsertedEntry))
		default:
			s.e.Source().Enqueue([]processlog.QueueEntry{queueEntry(f.InsertedEntry)})
		}
	}
}
