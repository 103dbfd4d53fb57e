package sim

import (
	"errors"
	"maps"
	"slices"

	"github.com/compensator-go/compensator"
)

// keyFate counts what producers learned about an idempotency key, and what the database did.
type keyFate struct {
	rows    int             // number of rows that were ever committed under the key
	kinds   map[string]bool // business types of those rows
	yes     int             // number of transactions reported as committed
	unknown int             // number of transactions with an unknown result, or whose process died
	no      int
}

func (o *oracle) fateLocked(key string) *keyFate {
	if o.orders[key] == nil {
		o.orders[key] = &keyFate{kinds: make(map[string]bool)}
	}
	return o.orders[key]
}

// noteOrderResult records the result that a producer got for its transaction.
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

// checkRefusedOrderLocked asserts G11 (one entry for each key): if a key is refused because of its type, the key was
// recorded with another type.
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

// historyOfKey returns the history of the row that the database has under an idempotency key, or nil.
func (o *oracle) historyOfKey(key compensator.IdempotencyKey) *rowHistory {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.keys[string(key)]
}

// checkResolved checks the answer of Resolve for an idempotency key. before is the history of the row when the call
// began.
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

// checkStoppedRun asserts G15 (stopping loses nothing): when Run has returned nil, no handler of its instance runs.
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

// checkClosed asserts G15 (stopping loses nothing). Once Run has returned nil and Close has returned, the instance
// holds no claim whose handler did not start.
//
// A claim whose release the database refused is an exception. checkClosed is called after Close, because a release may
// still be on its way when Run returns, and Close waits for it.
func (o *oracle) checkClosed(n *instance) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range o.idsLocked() {
		if l := o.histories[id]; o.hasUnstartedLocked(n, l) {
			o.failLocked("G15: instance %d has stopped in order, but did not release entry %s, which it claimed and did not start", n.number, l.id)
		}
	}
}

// hasUnstartedLocked reports whether an instance has a valid claim on an entry that it neither started nor released. It
// ignores a claim that dead-lettered the entry after repeated crashes, and a claim that only counted a lost lease.
func (o *oracle) hasUnstartedLocked(n *instance, l *rowHistory) bool {
	last := l.last()
	told := last.op.kind == opClaim && last.op.from == n && n.claims[l.id].row.Version == last.row.Version
	return told && !last.counts && !last.op.back[l.id] && last.row.DeliveryCount <= crashBudget && l.attemptOf(last.row.Version, n) == nil
}

// checkAtRest asserts the promises about the final state of all entries.
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

// checkNothingLostLocked asserts G8 (a success is stored): the database has stored the outcome of each attempt that has
// ended. There are three exceptions:
//   - The process died, or its Run returned an error.
//   - A transactional handler succeeded. Then its own transaction stores the outcome.
//   - A trigger refused the outcome, and a person has requeued the entry since.
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

// checkExactlyOnceLocked asserts G5 (exactly once in this database): in each epoch, a transactional handler has one
// effect if the entry succeeded, and none otherwise. The same holds for a transactional compensation.
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

// failedToStop reports whether Run has returned an error. In that case an outcome may be missing.
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

// isIdle reports whether no handler runs on a living instance.
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

// countNotAtRest returns the number of entries of handled types that are not at rest.
func (o *oracle) countNotAtRest() int {
	if n, back := o.countNotAtRestAfterLoss(); back {
		return n
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open
}
