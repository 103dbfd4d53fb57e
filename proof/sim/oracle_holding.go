package sim

import (
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

func (o *oracle) checkCall(n *instance, e *compensator.Entry) {
	stopped := n.stoppedAt.Load()
	if stopped != 0 && time.Now().UnixNano() > stopped && !n.dead.Load() {
		o.fail("G15: the handler of entry %s is called on instance %d, but the context of its Run ended %v ago", e.ID, n.number, time.Since(time.Unix(0, stopped)))
	}
	o.checkLoss(n, e)
}

func (o *oracle) checkHandled(businessType string, e *compensator.Entry) {
	if e.BusinessType != businessType {
		o.fail("G10: entry %s of type %s runs in the handler of type %s", e.ID, e.BusinessType, businessType)
	}
}

func (o *oracle) noteBrokenTx(n *instance) {
	if n.stoppedAt.Load() != 0 && !n.dead.Load() {
		o.readCounts(func(o *oracle) { o.sights[sawBroken]++ })
	}
}

// overran reports whether the attempt ran for longer than ranBeyond after its timeout. The instance no longer renews
// the lease of such an attempt, so other instances may run the entry again. The attempt's own instance must not.
func (a *attempt) overran() bool {
	deadline, _ := a.ctx.Deadline()
	end := time.Now()
	if a.ended {
		end = a.endedAt
	}
	return end.After(deadline.Add(ranBeyond))
}

func (a *attempt) hasNoOutcomeLeft() bool {
	// The success of a transactional handler is committed with the handler's transaction, or it is dropped because the
	// lease was lost.
	inItsTransaction := transactional(a.kind) && a.manner == fine
	return a.from.dead.Load() || a.repeated || a.stored || a.ended && inItsTransaction
}

// checkUnheldLocked asserts G16: an instance does not claim an entry of which it still holds an attempt. There is one
// exception. If the handler runs until long after its timeout, its instance may claim the entry to count the lost
// lease. But the instance must wait first: other instances can claim the entry one lease earlier.
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

// An outcome is unsettled while the handler runs, and until the instance has the answer to the COMMIT or to the
// settle.
func (l *rowHistory) unsettled(n *instance, epoch uint32) bool {
	return l.waitsForBegin(n, epoch) ||
		slices.ContainsFunc(l.attempts, func(a *attempt) bool { return a.from == n && a.epoch == epoch && !a.repeated && !a.stored })
}

// An attempt that waits for its BEGIN is not in attempts.
func (l *rowHistory) waitsForBegin(n *instance, epoch uint32) bool {
	return transactional(l.kind) && slices.ContainsFunc(l.steps, func(t transition) bool {
		return t.op.from == n && t.row.Epoch == epoch && t.started && !t.answered && l.attemptOf(t.row.Version, n) == nil
	})
}

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

// answeredLocked does nothing if another instance wrote this version.
func (l *rowHistory) answeredLocked(n *instance, version uint64) {
	if version < uint64(len(l.steps)) && l.steps[version].op.from == n {
		l.steps[version].answered = true
	}
}

// noteAccept counts a row that the instance refuses because it still holds the entry.
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

// checkQuarantineLocked asserts that few entries with lost leases run beside each other on one instance. Another entry
// no longer counts as running in these cases:
//   - Its attempt has no outcome left to store (hasNoOutcomeLeft).
//   - A trigger has refused the outcome.
//   - The handler has run until long after its timeout.
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
