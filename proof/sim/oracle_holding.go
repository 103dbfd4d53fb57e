package sim

import (
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// checkCall asserts G15 (stopping loses nothing): no handler is called after Run's context has ended. It also calls
// checkLoss, which asserts G19 (a loss is noticed).
func (o *oracle) checkCall(n *instance, e *compensator.Entry) {
	stopped := n.stoppedAt.Load()
	if stopped != 0 && time.Now().UnixNano() > stopped && !n.dead.Load() {
		o.fail("G15: the handler of entry %s is called on instance %d, but the context of its Run ended %v ago", e.ID, n.number, time.Since(time.Unix(0, stopped)))
	}
	o.checkLoss(n, e)
}

// checkHandled asserts G10 (the queue is only a hint): a type's handler gets only entries of its own type, even if the
// queue holds other ids under the type's key.
func (o *oracle) checkHandled(businessType string, e *compensator.Entry) {
	if e.BusinessType != businessType {
		o.fail("G10: entry %s of type %s runs in the handler of type %s", e.ID, e.BusinessType, businessType)
	}
}

// noteBrokenTx counts a batch that returned no results after the context of its Run had ended. checkCall then asserts
// that no entry of the batch runs again on this instance.
func (o *oracle) noteBrokenTx(n *instance) {
	if n.stoppedAt.Load() != 0 && !n.dead.Load() {
		o.readCounts(func(o *oracle) { o.sights[sawBroken]++ })
	}
}

// overran reports whether the handler ran until long after its timeout. Such an attempt no longer keeps other
// entries from running. It only keeps its own instance from running the entry again.
func (a *attempt) overran() bool {
	deadline, _ := a.ctx.Deadline()
	end := time.Now()
	if a.ended {
		end = a.endedAt
	}
	return end.After(deadline.Add(ranBeyond))
}

// hasNoOutcomeLeft reports whether the attempt has no outcome left to store.
func (a *attempt) hasNoOutcomeLeft() bool {
	// The success of a transactional handler is committed with the handler's transaction, or it is dropped because the
	// lease was lost. In both cases no result of Settle sets the field stored.
	inItsTransaction := transactional(a.kind) && a.manner == fine
	return a.from.dead.Load() || a.repeated || a.stored || a.ended && inItsTransaction
}

// checkUnheldLocked asserts G16 (repetitions are counted). Within an epoch, an instance does not claim an entry that it
// is still running, or whose outcome it still has to store.
//
// There is one exception. If a handler runs until long after its timeout, its instance may claim the entry to count the
// lost lease. It must leave the other instances the time of one lease to claim the entry first.
func (o *oracle) checkUnheldLocked(l *rowHistory, op *operation, before processlog.Row) {
	for _, a := range l.attempts {
		if a.from != op.from || a.epoch != before.Epoch || a.hasNoOutcomeLeft() {
			continue
		}
		if a.ended || !a.overran() {
			o.failLocked("G16: instance %d claims entry %s, but still holds its version %d (ended: %v)", op.from.number, l.id, a.version, a.ended)
		}
		if free, lease := min(-before.LeaseLeft, -before.DueIn), o.w.configOf(op.from).Lease; free < lease {
			o.failLocked("G16: the handler of instance %d is stuck on entry %s, version %d; the instance claims the entry again after %v instead of %v", op.from.number, l.id, a.version, free, lease)
		}
	}
}

// unsettled reports whether an instance may still have to store the outcome of an attempt of this epoch. An outcome is
// unsettled while the handler runs, and until the instance has the answer to the COMMIT or to the settle.
func (l *rowHistory) unsettled(n *instance, epoch uint32) bool {
	return l.waitsForBegin(n, epoch) ||
		slices.ContainsFunc(l.attempts, func(a *attempt) bool { return a.from == n && a.epoch == epoch && !a.repeated && !a.stored })
}

// waitsForBegin reports whether an attempt of an instance has no open transaction yet. Either the attempt still waits
// for the BEGIN, or the BEGIN failed and the database has not answered about the attempt's outcome. In both cases the
// handler was not called, so the attempt is not in attempts.
func (l *rowHistory) waitsForBegin(n *instance, epoch uint32) bool {
	return transactional(l.kind) && slices.ContainsFunc(l.steps, func(t transition) bool {
		return t.op.from == n && t.row.Epoch == epoch && t.started && !t.answered && l.attemptOf(t.row.Version, n) == nil
	})
}

// noteStartLocked notes that an instance has started an attempt of the entry that it last claimed.
func (o *oracle) noteStartLocked(n *instance, e observe.AttemptEvent) {
	l := o.histories[e.ID]
	if l == nil {
		return
	}
	for i := len(l.steps) - 1; i >= 0; i-- {
		if t := &l.steps[i]; t.op.from == n && (t.op.kind == opClaim || t.op.kind == opInsert && t.row.DeliveryCount == 1) {
			t.started = true
			return
		}
	}
}

// answeredLocked notes that an instance has got the database's answer about the outcome of a version. It does nothing
// if another instance wrote this version.
func (l *rowHistory) answeredLocked(n *instance, version uint64) {
	if version < uint64(len(l.steps)) && l.steps[version].op.from == n {
		l.steps[version].answered = true
	}
}

// noteAccept notes whether an instance accepts a row that it could claim, and returns accepts. It counts a row that the
// instance refuses because it still holds the entry.
func (o *oracle) noteAccept(n *instance, row *processlog.Row, accepts bool) bool {
	if !accepts {
		o.readCounts(func(o *oracle) {
			for _, a := range o.histories[row.ID].attempts {
				if a.from == n && a.epoch == row.Epoch && !a.hasNoOutcomeLeft() {
					o.sights[sawKept]++
				}
			}
		})
	}
	return accepts
}

// checkRunsAloneLocked asserts G16 (repetitions are counted): in one epoch, two attempts of an entry never run at the
// same time on one instance.
func (o *oracle) checkRunsAloneLocked(l *rowHistory, a *attempt) {
	for _, other := range l.attempts {
		if other.from == a.from && other.epoch == a.epoch && other.version != a.version && !other.hasNoOutcomeLeft() {
			o.failLocked("G16: entry %s starts as version %d on instance %d, but the instance still holds version %d (ended: %v)", l.id, a.version, a.from.number, other.version, other.ended)
		}
	}
	if a.lost > 0 {
		o.sights[sawSuspects]++
		o.checkQuarantineLocked(a)
	}
}

// checkQuarantineLocked asserts the limits for entries that have lost leases, because such an entry may crash its
// process:
//   - At most √Concurrency (rounded up) entries of one type with one lost lease run at the same time on an instance.
//     For a batch type the limit counts the entries in all its calls together.
//   - While an entry with two lost leases runs, no other entry that has lost a lease runs.
//
// An attempt stops counting when its outcome is stored, or when a trigger has refused its outcome.
func (o *oracle) checkQuarantineLocked(a *attempt) {
	few := 1
	for _, id := range o.idsLocked() {
		for _, other := range o.histories[id].attempts {
			if other.from != a.from || other.lost == 0 || other.id == a.id || other.hasNoOutcomeLeft() || other.overran() || other.refused {
				continue
			}
			if a.lost > 1 || other.lost > 1 {
				o.failLocked("G16: entry %s (%d lost leases) starts on instance %d beside entry %s (%d lost leases), version %d, whose outcome is not stored",
					a.id, a.lost, a.from.number, other.id, other.lost, other.version)
			}
			if other.kind == a.kind {
				few++
			}
		}
	}
	allowed := func(few int) bool { return (few-1)*(few-1) < o.w.plan.types.Concurrency }
	if a.kind == batchType {
		allowed = func(few int) bool { return few <= o.w.atOnce(batchType) }
	}
	if !allowed(few) {
		o.failLocked("G16: %d entries of type %s with lost leases run on instance %d, but Concurrency is %d", few, a.kind, a.from.number, o.w.calls(a.kind))
	}
}
