package engine

import (
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Known holds entries of a type that were claimed by their ids. RunKnown runs them.
type Known struct {
	Type *Type
	Mine []processlog.Row // leased; each call that they need holds a slot

	found claimed
}

// ClaimKnown claims entries by their ids, as many as there are slots for. Entries that are not due yet, or that must not
// run here now, go to the source.
//
// tried is the number of ids that it tried, from the start of the list. It is 0 if the claim failed or could not begin,
// for example because no slot was free.
func (e *Engine) ClaimKnown(businessType string, ids []processlog.ID) (k Known, tried int) {
	t := e.types.accepting(businessType)
	if t == nil || t.wait() > 0 || e.settler.behind() || e.held() != nil {
		return Known{}, 0
	}
	calls := t.slots.Take(t.callsFor(len(ids)))
	if calls == 0 {
		return Known{}, 0
	}
	tried = min(len(ids), t.fits(calls))
	found, err := e.claims.claim(t, unleased(ids[:tried]), calls)
	if err != nil {
		e.claimSchedule.free(t, calls)
		return Known{}, 0
	}
	e.claimSchedule.free(t, calls-t.calls(found.Mine))
	e.intake.enqueueWaiting(t, found.Claimed)
	for _, id := range found.spare {
		e.source.Move(processlog.QueueEntry{BusinessType: businessType, ID: id})
	}
	return Known{t, found.Mine, found}, tried
}

// RunKnown runs the claimed entries. The scanner finds entries that are put back.
func (e *Engine) RunKnown(k Known) {
	if len(k.Mine) > 0 {
		_ = e.dispatcher.startClaimed(k.Type, k.Mine, k.found.asked, 0)
	}
}

// Release releases the leases of entries that have run nothing, and enqueues the entries.
func (e *Engine) Release(token processlog.Token, entries ...processlog.QueueEntry) {
	e.claims.release(token, entries...)
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
	e.refusals.note(what, businessType, list)
}

// Taken records that the database has accepted a change of entries that it refused before.
func (e *Engine) Taken(what, businessType string, ids ...processlog.ID) {
	e.refusals.taken(what, businessType, ids...)
}
