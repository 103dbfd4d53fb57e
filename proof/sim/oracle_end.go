package sim

import (
	"errors"
	"maps"
	"slices"

	"github.com/compensator-go/compensator"
)

type keyFate struct {
	rows    int
	kinds   map[string]bool
	yes     int
	unknown int // number of transactions with an unknown result, or whose process died
	no      int
}

func (o *oracle) fateLocked(key string) *keyFate {
	if o.orders[key] == nil {
		o.orders[key] = &keyFate{kinds: make(map[string]bool)}
	}
	return o.orders[key]
}

func (o *oracle) noteOrderResult(order order, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checkRefusedOrderLocked(order, err)
	for _, e := range order.entries {
		fate := o.fateLocked(string(e.IdempotencyKey))
		switch {
		case order.undone || order.fails:
			fate.no++
		case err == nil:
			fate.yes++
			o.sights[sawCommitted]++
			if fate.rows == 0 {
				o.failLocked("G1: the transaction of %q has committed, but the entry does not exist", e.IdempotencyKey)
			} else if !fate.kinds[e.BusinessType] {
				o.failLocked("G11: the transaction of %q has committed with type %s, but the entry has %v", e.IdempotencyKey, e.BusinessType, slices.Collect(maps.Keys(fate.kinds)))
			}
		case errors.Is(err, compensator.ErrCommitUnknown), err == errBroken, err == errDead:
			fate.unknown++
		default:
			fate.no++
		}
	}
}

func (o *oracle) checkRefusedOrderLocked(order order, err error) {
	var other *compensator.OtherTypeError
	if !errors.As(err, &other) {
		return
	}
	o.sights[sawRefused]++
	asked := slices.ContainsFunc(order.entries, func(e compensator.NewEntry) bool {
		return e.IdempotencyKey == other.IdempotencyKey && e.BusinessType == other.Asked
	})
	if !asked || other.Asked == other.Recorded || !o.fateLocked(string(other.IdempotencyKey)).kinds[other.Recorded] {
		o.failLocked("G11: a key was refused without a reason: %v", err)
	}
}

func (o *oracle) historyOfKey(key compensator.IdempotencyKey) *rowHistory {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.keys[string(key)]
}

func (o *oracle) checkResolved(key compensator.IdempotencyKey, before *rowHistory, happened bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if fate := o.fateLocked(string(key)); happened && fate.rows == 0 {
		o.failLocked("G2: Resolve reports %q as recorded, but it was not recorded", key)
	}
	if before != nil && o.keys[string(key)] == before && !happened {
		o.failLocked("G2: Resolve reports %q as not recorded, but entry %s existed all the time, as %s", key, before.id, before.last().row.State)
	}
}

func (o *oracle) checkStoppedRun(n *instance) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.histories {
		for _, a := range l.attempts {
			if a.from == n && !a.ended {
				o.failLocked("G15: Run of instance %d has returned, but entry %s, version %d, still runs there", n.number, a.id, a.version)
			}
		}
		if last := l.last(); n.mustEndWell.Load() && last.op.kind == opClaim && last.op.from == n && last.row.DeliveryCount > 0 {
			o.failLocked("G15: Run of instance %d has returned, but entry %s is still leased to the instance", n.number, l.id)
		}
	}
}

// checkClosed is called after Close, because a release may still be on its way when Run returns, and Close waits for
// it.
func (o *oracle) checkClosed(n *instance) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range o.idsLocked() {
		if l := o.histories[id]; o.hasUnstartedLocked(n, l) {
			o.failLocked("G15: instance %d has stopped in order, but did not release entry %s, which it claimed and did not start", n.number, l.id)
		}
	}
}

// hasUnstartedLocked ignores a claim that dead-lettered the entry after repeated crashes, and a claim that only counted
// a lost lease.
func (o *oracle) hasUnstartedLocked(n *instance, l *rowHistory) bool {
	last := l.last()
	told := last.op.kind == opClaim && last.op.from == n && n.claims[l.id].row.Version == last.row.Version
	return told && !last.counts && !last.op.back[l.id] && last.row.DeliveryCount <= crashBudget && l.attemptOf(last.row.Version, n) == nil
}

func (o *oracle) checkAtRest() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range o.idsLocked() {
		l := o.histories[id]
		o.checkNothingLostLocked(l)
		o.checkExactlyOnceLocked(l)
		o.checkDoneAsReportedLocked(l)
	}
	for _, op := range o.ops {
		for _, w := range op.want {
			if op.failed && !op.back[w.ID] && !op.from.dead.Load() {
				o.failLocked("G16: a failed claim of instance %d may have leased entry %s, but the instance did not release it", op.from.number, w.ID)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o.orders)) {
		if fate := o.orders[key]; fate.rows > 0 && fate.yes+fate.unknown == 0 && fate.no > 0 {
			o.failLocked("G2: every transaction of %q was rolled back, but the entry exists", key)
		}
	}
}

func (o *oracle) idsLocked() []compensator.EntryID {
	ids := make([]compensator.EntryID, 0, len(o.histories))
	for id := range o.histories {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b compensator.EntryID) int { return int(a.Row()) - int(b.Row()) })
	return ids
}

func (o *oracle) checkNothingLostLocked(l *rowHistory) {
	for _, a := range l.attempts {
		gone := a.from.dead.Load() || a.from.failedToStop()
		inTx := transactional(l.kind) && a.manner == fine
		requeued := a.refused && a.epoch < l.last().row.Epoch
		if !gone && !inTx && !requeued && !a.stored && a.manner != unfinished {
			o.failLocked("G8: the outcome of entry %s, version %d, on instance %d was never stored", l.id, a.version, a.from.number)
		}
	}
}

func (o *oracle) checkExactlyOnceLocked(l *rowHistory) {
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
				o.failLocked("G5: entry %s, epoch %d, compensation %v, has %d effects and %d recorded successes", l.id, epoch, compensate, o.effect[e], want[e])
			}
		}
	}
}

func (n *instance) failedToStop() bool {
	select {
	case <-n.ended:
		return n.runErr != nil
	default:
		return false
	}
}

func (o *oracle) describeNotAtRest() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range o.idsLocked() {
		if l := o.histories[id]; l.kind != strayType && !l.last().row.State.Terminal() {
			return l.id.String() + " " + l.kind + " " + l.last().row.State.String()
		}
	}
	return "none"
}

func (o *oracle) isIdle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.histories {
		for _, a := range l.attempts {
			if !a.ended && !a.from.dead.Load() {
				return false
			}
		}
	}
	return true
}

func (o *oracle) countNotAtRest() int {
	if n, back := o.countNotAtRestAfterLoss(); back {
		return n
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open
}
