package sim

import (
	"errors"
	"maps"
	"slices"

	"github.com/compensator-go/compensator"
)

// keyFate is what producers were told about an idempotency key, and what is true.
type keyFate struct {
	rows    int             // ever committed
	kinds   map[string]bool // their business types
	yes     int             // transactions with it that were said to have committed
	unknown int             // whose end nobody knows, or whose process died
	no      int
}

func (o *oracle) fateLocked(key string) *keyFate {
	if o.orders[key] == nil {
		o.orders[key] = &keyFate{kinds: make(map[string]bool)}
	}
	return o.orders[key]
}

// orderEnded takes what a producer was told about its transaction.
func (o *oracle) orderEnded(order order, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refusedLocked(order, err)
	for _, e := range order.entries {
		fate := o.fateLocked(string(e.IdempotencyKey))
		switch {
		case order.undone || order.fails:
			fate.no++
		case err == nil:
			fate.yes++
			o.sights[sawCommitted]++
			if fate.rows == 0 {
				o.failLocked("G1: the transaction of %q has committed, and the entry is not there", e.IdempotencyKey)
			} else if !fate.kinds[e.BusinessType] {
				o.failLocked("G11: the transaction of %q has committed as one of %s, and the entry is %v", e.IdempotencyKey, e.BusinessType, slices.Collect(maps.Keys(fate.kinds)))
			}
		case errors.Is(err, compensator.ErrCommitUnknown), err == errBroken, err == errDead:
			fate.unknown++
		default:
			fate.no++
		}
	}
}

// refusedLocked: G11, what is refused as another type's was recorded as that.
func (o *oracle) refusedLocked(order order, err error) {
	var other *compensator.OtherTypeError
	if !errors.As(err, &other) {
		return
	}
	o.sights[sawRefused]++
	asked := slices.ContainsFunc(order.entries, func(e compensator.NewEntry) bool {
		return e.IdempotencyKey == other.IdempotencyKey && e.BusinessType == other.Asked
	})
	if !asked || other.Asked == other.Recorded || !o.fateLocked(string(other.IdempotencyKey)).kinds[other.Recorded] {
		o.failLocked("G11: refused with no reason: %v", err)
	}
}

// under is the retained row under an idempotency key; nil: there is none.
func (o *oracle) under(key compensator.IdempotencyKey) *life {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.keys[string(key)]
}

// resolved judges the answer about an idempotency key, of which before was the row when it was asked for.
func (o *oracle) resolved(key compensator.IdempotencyKey, before *life, happened bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if fate := o.fateLocked(string(key)); happened && fate.rows == 0 {
		o.failLocked("G2: Resolve says that %q was recorded; it was not", key)
	}
	if before != nil && o.keys[string(key)] == before && !happened {
		o.failLocked("G2: Resolve says that %q was not recorded, and entry %s has been there all the time, %s", key, before.id, before.last().row.State)
	}
}

// ranToItsEnd: G15, once Run has returned nil none of its handlers runs.
func (o *oracle) ranToItsEnd(n *instance) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.lives {
		for _, a := range l.attempts {
			if a.from == n && !a.ended {
				o.failLocked("G15: Run of instance %d has returned, and entry %s, version %d, still runs there", n.number, a.id, a.version)
			}
		}
		if last := l.last(); n.mustEndWell.Load() && last.op.kind == opClaim && last.op.from == n && last.row.DeliveryCount > 0 {
			o.failLocked("G15: Run of instance %d has returned, and entry %s is still leased to it", n.number, l.id)
		}
	}
}

// closed: G15, once a Run that has returned nil is closed, too, all that it claimed and did not start was given back, as far as
// the database let it. Where a statement hangs for longer than Run waits, Close waits for what comes of it.
func (o *oracle) closed(n *instance) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range o.idsLocked() {
		if l := o.lives[id]; o.unstartedLocked(n, l) {
			o.failLocked("G15: instance %d has stopped in order, and entry %s, which it claimed and did not start, was not given back", n.number, l.id)
		}
	}
}

// unstartedLocked reports whether an instance was told of a claim, which stands, and has neither run its entry, nor given it
// back, nor taken it out as a killer, nor counted a lease.
func (o *oracle) unstartedLocked(n *instance, l *life) bool {
	last := l.last()
	told := last.op.kind == opClaim && last.op.from == n && n.claims[l.id].row.Version == last.row.Version
	return told && !last.counts && !last.op.back[l.id] && last.row.DeliveryCount <= crashBudget && l.attemptOf(last.row.Version, n) == nil
}

// atRest judges the end.
func (o *oracle) atRest() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range o.idsLocked() {
		l := o.lives[id]
		o.nothingLostLocked(l)
		o.exactlyOnceLocked(l)
		o.doneAsToldLocked(l)
	}
	for _, op := range o.ops {
		for _, w := range op.want {
			if op.failed && !op.back[w.ID] && !op.from.dead.Load() {
				o.failLocked("G16: a claim of instance %d failed, may yet have been done, and entry %s was not given back", op.from.number, w.ID)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o.orders)) {
		if fate := o.orders[key]; fate.rows > 0 && fate.yes+fate.unknown == 0 && fate.no > 0 {
			o.failLocked("G2: every transaction of %q was rolled back, and the entry is there", key)
		}
	}
}

func (o *oracle) idsLocked() []compensator.EntryID {
	ids := make([]compensator.EntryID, 0, len(o.lives))
	for id := range o.lives {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b compensator.EntryID) int { return int(a.Row()) - int(b.Row()) })
	return ids
}

// nothingLostLocked: G8, what an attempt came to has reached the database, unless its process died.
func (o *oracle) nothingLostLocked(l *life) {
	for _, a := range l.attempts {
		gone := a.from.dead.Load() || a.from.failedToStop()
		inTx := transactional(l.kind) && a.manner == fine
		if !gone && !inTx && !a.stored && a.manner != unfinished {
			o.failLocked("G8: entry %s, version %d: what it came to on instance %d was never stored", l.id, a.version, a.from.number)
		}
	}
}

// exactlyOnceLocked: G5, the effect of a transactional handler happened once if the entry succeeded, or was
// compensated, in that epoch; and not at all otherwise.
func (o *oracle) exactlyOnceLocked(l *life) {
	if !transactional(l.kind) {
		return
	}
	want := make(map[effect]int)
	for _, s := range l.steps {
		if s.op.kind == opSettle && (s.row.State == compensator.Succeeded || s.row.State == compensator.Compensated) {
			want[effect{l.id, s.row.Epoch, s.row.State == compensator.Compensated}]++
		}
	}
	for epoch := uint32(0); epoch <= l.last().row.Epoch; epoch++ {
		for _, compensate := range []bool{false, true} {
			e := effect{l.id, epoch, compensate}
			if o.effect[e] != want[e] {
				o.failLocked("G5: entry %s, epoch %d, compensation %v: %d effects, %d recorded", l.id, epoch, compensate, o.effect[e], want[e])
			}
		}
	}
}

// failedToStop reports whether Run has returned an error: then an outcome may not be stored.
func (n *instance) failedToStop() bool {
	select {
	case <-n.ended:
		return n.runErr != nil
	default:
		return false
	}
}

// notAtRest names an entry that is still on its way.
func (o *oracle) notAtRest() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range o.idsLocked() {
		if l := o.lives[id]; l.kind != strayType && !l.last().row.State.Terminal() {
			return l.id.String() + " " + l.kind + " " + l.last().row.State.String()
		}
	}
	return "none"
}

// idle reports whether no handler runs on a living instance.
func (o *oracle) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.lives {
		for _, a := range l.attempts {
			if !a.ended && !a.from.dead.Load() {
				return false
			}
		}
	}
	return true
}

// restless counts the entries of handled types that are not at rest.
func (o *oracle) restless() int {
	if n, back := o.restlessAfterLoss(); back {
		return n
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open
}
