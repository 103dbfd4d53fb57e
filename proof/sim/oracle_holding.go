package sim

import (
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// called judges that a handler is called. G15: no more once Run's context has ended; G19: see asks.
func (o *oracle) called(n *instance, e *compensator.Entry) {
	stopped := n.stoppedAt.Load()
	if stopped != 0 && time.Now().UnixNano() > stopped && !n.dead.Load() {
		o.fail("G15: the handler of entry %s is called on instance %d, whose Run was told to stop %v before", e.ID, n.number, time.Since(time.Unix(0, stopped)))
	}
	o.asks(n, e)
}

// handles judges that a type's handler is given its own entries only (G10), whatever stands under the type's key in the queue.
func (o *oracle) handles(businessType string, e *compensator.Entry) {
	if e.BusinessType != businessType {
		o.fail("G10: entry %s of %s runs in the handler of %s", e.ID, e.BusinessType, businessType)
	}
}

// broke takes note of a batch that comes to nothing although its Run was told to stop: nothing of it may run any more.
func (o *oracle) broke(n *instance) {
	if n.stoppedAt.Load() != 0 && !n.dead.Load() {
		o.note(func(o *oracle) { o.sights[sawBroken]++ })
	}
}

// overran reports whether a handler has not returned, or had not, when its timeout was long past: such an attempt holds
// its entry no more, but for itself.
func (a *attempt) overran() bool {
	deadline, _ := a.ctx.Deadline()
	end := time.Now()
	if a.ended {
		end = a.endedAt
	}
	return end.After(deadline.Add(ranBeyond))
}

// over reports whether nothing of the attempt is left to be stored.
func (a *attempt) over() bool {
	inItsTransaction := transactional(a.kind) && a.manner == fine // or its fence was lost, which no answer tells
	return a.from.dead.Load() || a.repeated || a.stored || a.ended && inItsTransaction
}

// unheldLocked: G16, within an epoch an instance claims nothing that it runs, or whose outcome it still has to store;
// where a handler has not returned for too long it may count the lease, once others have had one in which to take it.
func (o *oracle) unheldLocked(l *life, op *operation, before processlog.Row) {
	for _, a := range l.attempts {
		if a.from != op.from || a.epoch != before.Epoch || a.over() {
			continue
		}
		if a.ended || !a.overran() {
			o.failLocked("G16: instance %d claims entry %s, whose version %d it still holds (ended: %v)", op.from.number, l.id, a.version, a.ended)
		}
		if free, lease := min(-before.LeaseLeft, -before.DueIn), o.w.configOf(op.from).Lease; free < lease {
			o.failLocked("G16: instance %d, whose handler is stuck on entry %s, version %d, claims it when it has been free for %v of %v", op.from.number, l.id, a.version, free, lease)
		}
	}
}

// unsettled reports whether an instance has had no answer yet to what an attempt of an epoch came to, be it that its handler, or
// the COMMIT of its transaction, has not returned.
func (l *life) unsettled(n *instance, epoch uint32) bool {
	return slices.ContainsFunc(l.attempts, func(a *attempt) bool { return a.from == n && a.epoch == epoch && !a.repeated && !a.stored })
}

// accepted takes note of what an instance does not claim although it could.
func (o *oracle) accepted(n *instance, row *processlog.Row, accepts bool) bool {
	if !accepts {
		o.note(func(o *oracle) {
			for _, a := range o.lives[row.ID].attempts {
				if a.from == n && a.epoch == row.Epoch && !a.over() {
					o.sights[sawKept]++
				}
			}
		})
	}
	return accepts
}

// besideNothingLocked: G16, no attempt begins beside another one of its epoch on the same instance.
func (o *oracle) besideNothingLocked(l *life, a *attempt) {
	for _, other := range l.attempts {
		if other.from == a.from && other.epoch == a.epoch && other.version != a.version && !other.over() {
			o.failLocked("G16: entry %s starts as version %d on instance %d, which still holds version %d (ended: %v)", l.id, a.version, a.from.number, other.version, other.ended)
		}
	}
	if a.lost > 0 {
		o.sights[sawSuspects]++
		o.quarantinedLocked(a)
	}
}

// quarantinedLocked judges that few entries of one lost lease run on an instance, and one of two beside none that has lost any. Of
// a batch type no more run than its calls hold. A place is free again when the outcome is stored, or a trigger has refused it.
func (o *oracle) quarantinedLocked(a *attempt) {
	few := 1
	for _, id := range o.idsLocked() {
		for _, other := range o.lives[id].attempts {
			if other.from != a.from || other.lost == 0 || other.id == a.id || other.over() || other.overran() || other.refused {
				continue
			}
			if a.lost > 1 || other.lost > 1 {
				o.failLocked("G16: suspect %s (%d lost) starts on instance %d beside suspect %s (%d lost), version %d, whose outcome is not stored",
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
		o.failLocked("G16: %d suspects of %s run on instance %d, whose concurrency is %d", few, a.kind, a.from.number, o.w.calls(a.kind))
	}
}
