package sim

import (
	"time"

	"github.com/compensator-go/compensator"
)

// called judges that a handler is called. G15: no more once Run's context has ended.
func (o *oracle) called(n *instance, e *compensator.Entry) {
	stopped := n.stoppedAt.Load()
	if stopped != 0 && time.Now().UnixNano() > stopped && !n.dead.Load() {
		o.fail("G15: the handler of entry %s is called on instance %d, whose Run was told to stop %v before", e.ID, n.number, time.Since(time.Unix(0, stopped)))
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
	return a.from.dead.Load() || a.stored || a.ended && inItsTransaction
}

// unheldLocked: G16, within an epoch an instance claims nothing that it runs, or whose outcome it still has to store;
// where a handler has not returned for too long it may count the lease.
func (o *oracle) unheldLocked(l *life, op *operation, before compensator.Row) {
	for _, a := range l.attempts {
		if a.from == op.from && a.epoch == before.Epoch && !a.over() && !a.overran() {
			o.failLocked("G16: instance %d claims entry %s, whose version %d it still holds (ended: %v)", op.from.number, l.id, a.version, a.ended)
		}
	}
}

// accepted takes note of what an instance does not claim although it could.
func (o *oracle) accepted(n *instance, row *compensator.Row, accepts bool) bool {
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

// besideNothingLocked: G16, no attempt begins beside another one of its epoch on the same instance; and of the entries that
// have lost two leases, none beside another one.
func (o *oracle) besideNothingLocked(l *life, a *attempt) {
	for _, other := range l.attempts {
		if other.from == a.from && other.epoch == a.epoch && other.version != a.version && !other.over() {
			o.failLocked("G16: entry %s starts as version %d on instance %d, which still holds version %d (ended: %v)", l.id, a.version, a.from.number, other.version, other.ended)
		}
	}
	if a.lost < suspectAfter {
		return
	}
	o.sights[sawSuspects]++
	for _, id := range o.idsLocked() {
		for _, other := range o.lives[id].attempts {
			if other.from == a.from && other.lost >= suspectAfter && other.id != a.id && !other.over() && !other.overran() {
				o.failLocked("G16: suspect %s starts on instance %d beside suspect %s, version %d, whose outcome is not stored", a.id, a.from.number, other.id, other.version)
			}
		}
	}
}

// suspectAfter is how many leases in a row an entry may lose before it runs one at a time.
const suspectAfter = 2
