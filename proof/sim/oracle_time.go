package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// spareSlots is how many entries of a type can run at the same time in a calm seed without waiting for a slot. It is
// half of the type's slots, because open transactions may use the other half.
const spareSlots = 4

// promptness is the longest delay of a start without faults. It covers a dozen steps, the random part of the scanners'
// intervals, and the rounding of clocks.
const promptness = 100 * time.Millisecond

// ranBeyond is how long after an attempt's timeout the lease is still renewed.
const ranBeyond = time.Second

// polledWithin is how long the library polls for a commit that is not reported to it. It begins to poll at the INSERT
// of the transaction's entries. An entry of such a transaction may start later by polledWithin.
const polledWithin = time.Second

// mustBePromptLocked reports whether the entry must not be late. The seed must be calm, and the type must have free
// slots. The commit must be reported to the library, or the library must poll for it. Two kinds of types are excluded:
// the hog, whose handlers hang, and types with a limit, whose entries wait for the limit.
func (o *oracle) mustBePromptLocked(l *rowHistory) bool {
	p := &o.w.plan
	_, limited := o.w.apart.limits[l.kind]
	if !p.calm || limited || l.kind == p.hog || l.kind == strayType || o.crowded[l.kind] {
		return false
	}
	if p.ordered[l.key] > 1 { // An insert of the same key locks the row.
		return false
	}
	last := l.last().op
	switch last.kind {
	case opInsert:
		return p.thinking[l.key] < polledWithin && (p.sharedQueue || last.from.runs)
	case opChange:
		return p.sharedQueue && !last.inTx
	}
	return last.kind == opSettle
}

// checkPromptClaimLocked asserts G17 (no type holds up another): if an entry is due and an instance knows of it, it is
// claimed at once.
func (o *oracle) checkPromptClaimLocked(l *rowHistory, before processlog.Row) {
	if !o.mustBePromptLocked(l) {
		return
	}
	late := min(-before.DueIn, time.Since(l.last().at))
	if l.last().op.change.Action == processlog.ActionReschedule { // After a reschedule, a running attempt keeps its lease.
		late = min(late, -before.LeaseLeft)
		if l.wasHeld(before.Epoch, time.Now().Add(-late)) {
			return
		}
	}
	o.sights[sawPrompt]++
	allowed := promptness + o.maxLinger(l.kind)
	if o.w.plan.untold[l.key] > 0 {
		o.sights[sawPolledCommit]++
		allowed += polledWithin
	}
	if late > allowed {
		o.failLocked("G17: entry %s of type %s, last state %s, was claimed %v late, although slots were free and nothing blocked it", l.id, l.kind, opNames[l.last().op.kind], late)
	}
}

// wasHeld reports whether a living instance still held an attempt of the given epoch at the time free, when the entry's
// lease ended. An attempt that had ended less than promptness before free counts too.
//
// If wasHeld is true, a late claim is no fault. The queue may have offered the entry to the instance that held the
// attempt. This instance must then put the entry back for a while (G16, repetitions are counted).
func (l *rowHistory) wasHeld(epoch uint32, free time.Time) bool {
	return slices.ContainsFunc(l.attempts, func(a *attempt) bool {
		return a.epoch == epoch && !a.from.dead.Load() && (!a.ended || a.endedAt.After(free.Add(-promptness)))
	})
}

// checkPromptStartLocked asserts G17 (no type holds up another): a claimed entry starts at once.
func (o *oracle) checkPromptStartLocked(l *rowHistory, claim transition) {
	again := func(a *attempt) bool { return a.version == claim.row.Version } // An entry of a failed batch runs again alone.
	if !o.w.plan.calm || l.kind == o.w.plan.hog || slices.ContainsFunc(l.attempts, again) {
		return
	}
	if late := time.Since(claim.at); late > promptness {
		o.failLocked("G17: entry %s of type %s started %v after its claim, although nothing blocked it", l.id, l.kind, late)
	}
}

// checkWaitLocked asserts G9 (nothing starts early): if a handler asked for a delay, the entry is due after exactly
// that delay.
func (o *oracle) checkWaitLocked(before, after processlog.Row, a *attempt) {
	again := after.State == compensator.Retrying || after.State == before.State
	if a == nil || !again || a.voidable() || a.manner != snoozed && a.manner != laterOn {
		return
	}
	want := max(a.asked, 100*time.Millisecond)
	if want > longWait {
		o.sights[sawSlept]++
	}
	if after.DueIn < want || after.DueIn > want+time.Second {
		o.failLocked("G9: the handler of entry %s asked for a delay of %v, but the entry is due in %v", after.ID, want, after.DueIn)
	}
}

// checkRenewalLocked asserts G16 (repetitions are counted): without faults an attempt keeps its lease for the duration
// ranBeyond after its timeout.
func (o *oracle) checkRenewalLocked(l *rowHistory, before processlog.Row) {
	if !o.w.plan.calm || o.w.plan.ordered[l.key] > 1 { // An insert of the same key locks the row, so renewals fail.
		return
	}
	for _, a := range l.attempts {
		if a.version == before.Version && !a.ended && time.Since(a.at) < o.w.plan.types.Timeout+ranBeyond {
			o.failLocked("G16: entry %s was claimed while its attempt of version %d ran within its timeout, on an instance without faults", l.id, a.version)
		}
	}
}

// noteLostLeases records the leases that an instance could not renew. It is called when the instance learns of this.
func (o *oracle) noteLostLeases(n *instance, held []processlog.Held, noteLostLeases []compensator.EntryID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range held {
		l := o.histories[h.ID]
		if l == nil || !slices.Contains(noteLostLeases, h.ID) || l.holdsLocked(h.Version) { // The answer names entries only, so it may be about another version.
			continue
		}
		for _, a := range l.attempts {
			if a.from == n && a.version == h.Version && !a.ended && a.lostAt.IsZero() {
				a.lostAt = time.Now()
				o.sights[sawLost]++
			}
		}
	}
}

// holdsLocked reports whether the row is unchanged since the claim that wrote this version.
func (l *rowHistory) holdsLocked(version uint64) bool {
	return l.last().row.Version == version && !l.last().row.State.Terminal()
}

// checkAttemptEnd is called when a handler ends. It asserts G16 (repetitions are counted). If the lease was lost, the
// handler's context must have reported that. If the context reported a lost lease, the lease must have been lost. A
// batch is not interrupted, because its other entries still have their leases.
func (o *oracle) checkAttemptEnd(a *attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	unaware := a.ctx.Err() == nil && !a.lostAt.IsZero() && time.Since(a.lostAt) > time.Millisecond
	if unaware && (a.kind != batchType || a.compensate) {
		o.failLocked("G16: the context of the handler of entry %s, version %d, did not report that the lease was lost", a.id, a.version)
	}
	a.told = toldToStop(a)
	l, told := o.histories[a.id], errors.Is(context.Cause(a.ctx), compensator.ErrLeaseLost)
	if told && l != nil && l.holdsLocked(a.version) && o.w.plan.calm && o.w.plan.ordered[l.key] <= 1 { // This is the same condition as in checkRenewalLocked.
		o.failLocked("G16: the context of the handler of entry %s, version %d, reported a lost lease, but the lease was not lost", a.id, a.version)
	}
}

// noteRelease records a release, even if it fails.
func (o *oracle) noteRelease(token processlog.Token, ids ...compensator.EntryID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	op := o.ops[token]
	if op == nil {
		return
	}
	if op.back == nil {
		op.back = make(map[compensator.EntryID]bool)
	}
	for _, id := range ids {
		op.back[id] = true
	}
}

// checkQueueOutcomes asserts that an instance removes an entry from the queue only if the entry is blocked, or is at
// rest in the database.
func (o *oracle) checkQueueOutcomes(businessType string, items []processlog.QueueOutcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, item := range items {
		l := o.histories[item.ID]
		if !item.Remove || l == nil || l.kind != businessType {
			continue
		}
		if !l.everEnded() && !l.blocked {
			o.failLocked("G10: an instance removed entry %s from the queue, but the entry is %s", l.id, l.last().row.State)
		}
	}
}
