package ordering

import (
	"context"
	"errors"
	"slices"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/processlog"
)

type nextEntry struct {
	businessType string
	id           processlog.ID
	front        processlog.Position // position of the entry that blocked this one; zero if that is unknown
}

// leaseGivenBack handles an attempt that gives its lease back without a start. While the attempt held the lease, no
// other entry of its ordering key could run. An entry with an earlier position may have committed in this time, and may
// run now. So leaseGivenBack looks for the first entry of the key.
func (o *Ordering) leaseGivenBack(a *engine.Attempt) {
	o.attemptOver(o.positions.take(a).position, a.Row.State)
}

func (o *Ordering) endedByPerson(row *processlog.Row, to processlog.State) {
	o.attemptOver(o.positionOf(row), to)
}

// attemptOver looks for the entry of the key that may run next. The parameter p is the position of the entry whose
// attempt is over.
//
// attemptOver looks even if this entry has not ended. An entry with an earlier position may have committed during the
// attempt. The lease of the attempt has kept the earlier entry from running, and now the earlier entry may run.
func (o *Ordering) attemptOver(p processlog.Position, state processlog.State) {
	switch {
	case p.Key == "":
		return
	case !state.Terminal():
		o.toAdvance.Add(processlog.Position{BusinessType: p.BusinessType, Key: p.Key})
		return
	}
	s, _ := o.serialOf(p.BusinessType)
	if state == processlog.Dead && !s.PassDead {
		return
	}
	if next := o.seenEntries.remove(p); !next.IsZero() {
		o.claimOrFind(nextEntry{businessType: p.BusinessType, id: next, front: p})
	} else {
		o.toAdvance.Add(p)
	}
}

// maxAdvanceTries is the maximum number of calls of Store.Advance for one batch of positions. If all calls fail, a
// sweep through all keys finds the next entries of these keys later.
const maxAdvanceTries = 5

func (o *Ordering) findNext(batch []processlog.Position) {
	for businessType, positions := range grouped.Each(batch, func(p processlog.Position) string { return p.BusinessType }) {
		s, _ := o.serialOf(businessType)
		for failures := 1; ; failures++ {
			ctx, cancel := o.e.Statement()
			next, err := o.e.Store.Advance(ctx, businessType, positions, !s.PassDead)
			cancel()
			err = o.sawAdvance(businessType, err)
			failpoint.Reach(failpoint.OrderingMoved)
			o.claimOrFindAll(businessType, next)
			if err == nil || failures == maxAdvanceTries || !o.e.Wait(engine.Backoff(failures)) {
				break
			}
		}
	}
	o.toDelete.Add(batch...)
}

// sawAdvance notes the error of Store.Advance as a problem, and returns the error if another try may help. If the
// database refused to change some entries, sawAdvance returns nil. Each of these entries becomes due by itself at the
// end of its wait.
func (o *Ordering) sawAdvance(businessType string, err error) error {
	var refused *processlog.RefusedError
	if errors.As(err, &refused) {
		o.e.Refusals.Note(problemRefusedWake, businessType, refused.Refusals)
		err = nil
	}
	o.e.NoteResult(problemRead, err)
	return err
}

// deletePositions may fail without harm, because a later check of the key deletes the positions.
func (o *Ordering) deletePositions(batch []processlog.Position) {
	batch = slices.DeleteFunc(batch, func(p processlog.Position) bool { return p.ID.IsZero() })
	if len(batch) == 0 {
		return
	}
	for failures := 1; ; failures++ {
		ctx, cancel := o.e.Statement()
		err := o.e.Store.Forget(ctx, batch)
		cancel()
		o.e.NoteResult(problemRead, err)
		if err == nil || failures == maxAdvanceTries || !o.e.Wait(engine.Backoff(failures)) {
			return
		}
	}
}

func (o *Ordering) claimOrFindAll(businessType string, ids []processlog.ID) {
	next := make([]nextEntry, len(ids))
	for i, id := range ids {
		next[i] = nextEntry{businessType: businessType, id: id}
	}
	o.claimOrFind(next...)
}

func (o *Ordering) claimOrFind(entries ...nextEntry) {
	if len(entries) == 0 || o.toClaim.Add(entries...) {
		return
	}
	for _, e := range entries {
		o.findSuccessor(e)
	}
}

func (o *Ordering) findSuccessor(e nextEntry) {
	if e.front.Key != "" {
		o.toAdvance.Add(e.front)
	} else {
		o.enqueue(e.businessType, e.id)
	}
}

func (o *Ordering) enqueue(businessType string, id processlog.ID) {
	o.e.Source().Move(processlog.QueueEntry{BusinessType: businessType, ID: id})
	if o.e.Source().Scope() == engine.ScopeNone {
		o.sweepOf(businessType).restart()
		// ScopeNone means that the source of due entries does not answer. Then the source cannot wake the scanner, so
		// wake the scanner here.
		o.e.Expect(businessType, 0)
	}
}

func (o *Ordering) claimNext(batch []nextEntry) {
	for name, entries := range grouped.Each(batch, func(e nextEntry) string { return e.businessType }) {
		known, tried := o.claimKnown(name, entries)
		claimedIDs := idsOf(known.Mine)
		o.e.RunClaimed(known)
		for i, e := range entries {
			switch {
			case claimedIDs[e.id]:
				if e.front.Key != "" {
					o.toDelete.Add(e.front)
				}
			case i >= tried, e.front.Key != "":
				o.findSuccessor(e)
			}
		}
	}
}

// claimKnown claims entries whose ids are known, beginning with the first entries of the list. The result named tried
// is the number of entries that the claim has tried. It is 0 if the claim failed or could not begin. If the claim could
// not lease an entry, claimKnown passes the entry to the source of due entries, which offers it again later.
func (o *Ordering) claimKnown(businessType string, entries []nextEntry) (found engine.ClaimedRows, tried int) {
	t := o.e.AcceptingType(businessType)
	if t == nil || t.Linger() > 0 || o.e.OutcomesBacklogged() || o.e.OutcomesRefused(t) || o.e.HoldReason() != nil {
		return found, 0
	}
	calls := t.Slots().Take(t.CallsFor(len(entries)))
	if calls == 0 {
		return found, 0
	}
	wanted := make([]processlog.Wanted, min(len(entries), t.MaxEntries(calls)))
	for i := range wanted {
		wanted[i].ID = entries[i].id
	}
	found, err := o.e.ClaimWithSlots(t, wanted, calls)
	if err != nil {
		return found, 0
	}
	for _, id := range found.WithoutCall {
		o.e.Source().Move(processlog.QueueEntry{BusinessType: businessType, ID: id})
	}
	failpoint.Reach(failpoint.OrderingFollowed)
	return found, len(wanted)
}

func idsOf(rows []processlog.Row) map[processlog.ID]bool {
	ids := make(map[processlog.ID]bool, len(rows))
	for i := range rows {
		ids[rows[i].ID] = true
	}
	return ids
}

// AdvanceKeys takes entries by their ids, and makes the next entry of each of their ordering keys due. It reports
// whether any of these next entries may run now. Only tests call AdvanceKeys. Without this call, the next entry becomes
// due a moment after the entry in front of it has ended.
func (o *Ordering) AdvanceKeys(ctx context.Context, ids []processlog.ID) (bool, error) {
	if !o.hasSerial.Load() {
		return false, nil
	}
	keys := make(map[string][]processlog.Position) // by type
	for chunk := range slices.Chunk(ids, processlog.MaxRows) {
		rows, err := o.e.Store.Load(ctx, chunk)
		if err != nil {
			return false, err
		}
		for i := range rows {
			if p := o.positionOf(&rows[i]); p.Key != "" {
				keys[p.BusinessType] = append(keys[p.BusinessType], processlog.Position{Key: p.Key})
			}
		}
	}
	moved := false
	for businessType, positions := range keys {
		s, _ := o.serialOf(businessType)
		next, err := o.e.Store.Advance(ctx, businessType, positions, !s.PassDead)
		for _, id := range next {
			o.enqueue(businessType, id)
		}
		if moved = moved || len(next) > 0; err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// Blocked returns which of the given entries wait for another entry of their key. It is for tests, as AdvanceKeys is.
func (o *Ordering) Blocked(ctx context.Context, ids []processlog.ID) (blocked []processlog.ID, err error) {
	if !o.hasSerial.Load() {
		return nil, nil
	}
	for chunk := range slices.Chunk(ids, processlog.MaxRows) {
		rows, err := o.e.Store.Load(ctx, chunk)
		if err != nil {
			return nil, err
		}
		for businessType, group := range grouped.Each(rows, func(row processlog.Row) string { return row.BusinessType }) {
			ids := make([]processlog.ID, len(group))
			for i := range ids {
				ids[i] = group[i].ID
			}
			some, err := o.blocked(ctx, businessType, ids)
			if err != nil {
				return nil, err
			}
			blocked = append(blocked, some...)
		}
	}
	return blocked, nil
}
