package engine

import (
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Known holds entries of a type that were claimed by their ids. RunKnown runs them.
type Known struct {
	Type  *Type
	Mine  []processlog.Row // leased; each call that they need holds a slot
	Asked time.Time        // before the statement was sent by which this process got the leases

	Gone  []processlog.ID // they do not exist, or have ended
	Spare []processlog.ID // claimable entries for which no call was left

	Rejected []processlog.Refusal // the database refuses to lease them
}

// ClaimKnown claims entries by their ids, as many as there are slots for. Entries that are not due yet, or that must not
// run here now, go to the source.
//
// tried is the number of ids that it tried, from the start of the list. It is 0 if the claim failed or could not begin,
// for example because no slot was free.
func (e *Engine) ClaimKnown(businessType string, ids []processlog.ID) (k Known, tried int) {
	t := e.types.accepting(businessType)
	if t == nil || t.Wait() > 0 || e.Behind() || e.Held() != nil {
		return Known{}, 0
	}
	calls := t.slots.Take(t.callsFor(len(ids)))
	if calls == 0 {
		return Known{}, 0
	}
	tried = min(len(ids), t.fits(calls))
	k, err := e.ClaimWanted(t, unleased(ids[:tried]), calls)
	if err != nil {
		return Known{}, 0
	}
	for _, id := range k.Spare {
		e.source.Move(processlog.QueueEntry{BusinessType: businessType, ID: id})
	}
	return k, tried
}

// ClaimWanted claims entries for a number of calls whose slots the caller holds. It frees the slots that are not needed. Entries
// that are not due yet, or that must not run here now, go to the source. The caller takes care of the spare ones.
func (e *Engine) ClaimWanted(t *Type, want []processlog.Wanted, calls int) (Known, error) {
	found, err := e.claims.claim(t, want, calls)
	e.claimSchedule.free(t, calls-t.calls(found.Mine))
	if err != nil {
		return Known{}, err
	}
	var wait []processlog.QueueEntry
	for _, w := range found.Waiting {
		wait = append(wait, processlog.QueueEntry{BusinessType: t.Name, ID: w.ID, In: w.In})
	}
	for _, r := range found.Rejected {
		wait = append(wait, processlog.QueueEntry{BusinessType: t.Name, ID: r.ID, In: e.refusals.RestLeft(t.Name, r.ID)})
	}
	for _, r := range found.Refused {
		wait = append(wait, processlog.QueueEntry{BusinessType: r.BusinessType, ID: r.ID, In: RefusedRetry})
	}
	e.source.Enqueue(wait)
	return Known{Type: t, Mine: found.Mine, Asked: found.asked, Gone: found.Gone, Spare: found.spare, Rejected: found.Rejected}, nil
}

// RunKnown runs the claimed entries. It returns how many of them turned out to be blocked. The scanner finds those later.
func (e *Engine) RunKnown(k Known) (blocked int) {
	if len(k.Mine) > 0 {
		blocked, _ = e.dispatcher.startClaimed(k.Type, k.Mine, k.Asked, 0)
	}
	return blocked
}

// Behind reports whether so many outcomes wait to be stored that nothing more is to be claimed.
func (e *Engine) Behind() bool { return e.settler.behind() }

// FreeSlots frees slots of a type, for which due entries may be waiting.
func (e *Engine) FreeSlots(t *Type, n int) { e.claimSchedule.free(t, n) }

// Enqueue hands entries to the source.
func (e *Engine) Enqueue(entries ...processlog.QueueEntry) { e.source.Enqueue(entries) }

// Release releases the leases of entries that have run nothing, and enqueues the entries.
func (e *Engine) Release(token processlog.Token, entries ...processlog.QueueEntry) {
	e.releases.Release(token, entries...)
}

// ReleaseLater does the same, but has a batcher try. It is for callers that have just got no answer from the database.
func (e *Engine) ReleaseLater(token processlog.Token, entries ...processlog.QueueEntry) {
	e.releases.Later(token, entries...)
}

// OfferAgain makes the entry of an attempt due again after in. The attempt must not have called its handler.
func (e *Engine) OfferAgain(a *Attempt, in time.Duration) { e.settler.offerAgain(a, in) }

// Fail ends an attempt with an error without calling a handler.
func (e *Engine) Fail(a *Attempt, err error) {
	e.settler.batcher.Add(settlement{a: a, outcome: a.Type.safeOutcomeOf(&a.Row, err, nil)})
}

// Move moves an entry in the source so that it is due after in.
func (e *Engine) Move(businessType string, id processlog.ID, in time.Duration) {
	e.source.Move(processlog.QueueEntry{BusinessType: businessType, ID: id, In: in})
}

// Reach returns whose entries the source reports now.
func (e *Engine) Reach() Reach { return e.source.Reach() }

// Refused records that the database refuses a change of the listed entries. Health and the log then name them.
func (e *Engine) Refused(what, businessType string, list []processlog.Refusal) {
	e.refusals.Note(what, businessType, list)
}

// Taken records that the database has accepted a change of entries that it refused before.
func (e *Engine) Taken(what, businessType string, ids ...processlog.ID) {
	e.refusals.Taken(what, businessType, ids...)
}
