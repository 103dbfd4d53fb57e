package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// spareSlots is half of the type's slots, because open transactions may use the other half.
const spareSlots = 4

// promptness covers a dozen steps, the random part of the scanners' intervals, and the rounding of clocks.
const promptness = 100 * time.Millisecond

const ranBeyond = time.Second

// polledWithin is how long the library polls, from the INSERT on, for a commit that is not reported to it.
const polledWithin = time.Second

// mustBePromptLocked reports whether the entry must not be late. Two kinds of types are excluded:
//   - The handlers of the type plan.hog hang, so its entries wait for a slot.
//   - The entries of a type with a limit wait for the limit.
func (o *oracle) mustBePromptLocked(l *rowHistory) bool {
	p := &o.w.plan
	_, limited := o.w.apart.limits[l.kind]
	if !p.calm || limited || l.kind == p.hog || l.kind == strayType || o.crowded[l.kind] {
		return false
	}
	if p.ordered[l.key] > 1 {
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

// wasHeld reports whether a living instance still held an attempt of the given epoch when the entry's lease ended. The
// parameter free is the time at which the lease ended. The result is also true if the attempt ended before this time by
// less than the constant promptness.
//
// If wasHeld returns true, a late claim is no fault. The queue may have offered the entry to the instance that held the
// attempt. This instance must put the entry back for a while. See promise G16.
func (l *rowHistory) wasHeld(epoch uint32, free time.Time) bool {
	return slices.ContainsFunc(l.attempts, func(a *attempt) bool {
		return a.epoch == epoch && !a.from.dead.Load() && (!a.ended || a.endedAt.After(free.Add(-promptness)))
	})
}

func (o *oracle) checkPromptStartLocked(l *rowHistory, claim transition) {
	again := func(a *attempt) bool { return a.version == claim.row.Version }
	if !o.w.plan.calm || l.kind == o.w.plan.hog || slices.ContainsFunc(l.attempts, again) {
		return
	}
	if late := time.Since(claim.at); late > promptness {
		o.failLocked("G17: entry %s of type %s started %v after its claim, although nothing blocked it", l.id, l.kind, late)
	}
}

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

func (o *oracle) checkRenewalLocked(l *rowHistory, before processlog.Row) {
	// A lease may be lost because of a fault. It may also be lost if several orders record the same key: the insert of
	// the key locks the row, so renewals fail.
	if !o.w.plan.calm || o.w.plan.ordered[l.key] > 1 {
		return
	}
	for _, a := range l.attempts {
		if a.version == before.Version && !a.ended && time.Since(a.at) < o.w.plan.types.Timeout+ranBeyond {
			o.failLocked("G16: entry %s was claimed while its attempt of version %d ran within its timeout, on an instance without faults", l.id, a.version)
		}
	}
}

func (o *oracle) noteLostLeases(n *instance, held []processlog.Held, noteLostLeases []compensator.EntryID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range held {
		l := o.histories[h.ID]
		// The answer names entries without versions. If this version still holds its lease, the lease of another
		// version was lost.
		if l == nil || !slices.Contains(noteLostLeases, h.ID) || l.holdsLocked(h.Version) {
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

func (l *rowHistory) holdsLocked(version uint64) bool {
	return l.last().row.Version == version && !l.last().row.State.Terminal()
}

// checkAttemptEnd asserts G16 when a handler returns: the context of the handler reports a lost lease, and only a lost
// lease. A batch handler is excluded. If one entry of a batch loses its lease, the context of the batch does not end,
// because the other entries still have their leases.
func (o *oracle) checkAttemptEnd(a *attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	unaware := a.ctx.Err() == nil && !a.lostAt.IsZero() && time.Since(a.lostAt) > time.Millisecond
	if unaware && (a.kind != batchType || a.compensate) {
		o.failLocked("G16: the context of the handler of entry %s, version %d, did not report that the lease was lost", a.id, a.version)
	}
	a.told = toldToStop(a)
	l, told := o.histories[a.id], errors.Is(context.Cause(a.ctx), compensator.ErrLeaseLost)
	// Because of a fault, or if several orders record the same key, renewals may fail. Then the context may report a
	// lost lease although no instance has claimed the entry.
	if told && l != nil && l.holdsLocked(a.version) && o.w.plan.calm && o.w.plan.ordered[l.key] <= 1 {
		o.failLocked("G16: the context of the handler of entry %s, version %d, reported a lost lease, but the lease was not lost", a.id, a.version)
	}
}

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
