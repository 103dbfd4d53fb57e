package sim

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

const orderingStream = 7733

type ordering struct {
	kinds    map[string]bool
	keys     uint64
	passDead bool
	ignorant bool // whether some instances that only record do not know the serial types
}

// In a calm seed no type is serial, because a blocked entry would be late.
func (w *world) drawOrdering() {
	rng := rand.New(rand.NewPCG(w.seed, orderingStream))
	if w.plan.calm || rng.IntN(6) > 0 {
		return
	}
	kinds := map[string]bool{handledTypes[rng.IntN(len(handledTypes))]: true}
	for _, kind := range handledTypes {
		if rng.IntN(2) == 0 {
			kinds[kind] = true
		}
	}
	w.apart.ordering = ordering{kinds: kinds, keys: 1 + rng.Uint64N(2), passDead: rng.IntN(2) == 0, ignorant: rng.IntN(2) == 0}
	for range rng.IntN(3) {
		w.crowd(rng)
	}
}

func (w *world) crowd(rng *rand.Rand) {
	from, span := time.Duration(rng.Int64N(int64(w.plan.chaos*7/10))), time.Duration(rng.Int64N(int64(3*time.Second)))
	kind := handledTypes[rng.IntN(len(handledTypes))]
	for range 3 + rng.IntN(10) {
		o := order{at: from + time.Duration(rng.Int64N(int64(span)+1)), whom: rng.IntN(8), way: way(rng.IntN(int(ways)))}
		if rng.IntN(4) == 0 {
			o.thinking = time.Duration(rng.Int64N(int64(time.Second)))
		}
		for range 1 + rng.IntN(4) {
			e := compensator.NewEntry{BusinessType: kind}
			e.IdempotencyKey = compensator.IdempotencyKey("t" + strconv.FormatUint(rng.Uint64N(1<<30), 10))
			e.Content = strconv.AppendQuote(nil, string(e.IdempotencyKey))
			if rng.IntN(4) == 0 {
				e.Delay = time.Duration(rng.Int64N(int64(3 * time.Second)))
			}
			o.entries = append(o.entries, e)
		}
		w.plan.orders = append(w.plan.orders, o)
	}
}

func (l *ordering) key(kind, idempotencyKey string) string {
	// An entry whose key ends in ".after" runs after a batch, but may be recorded before entries of the batch. It gets no
	// ordering key. With the key of such an entry of the batch, each of the two entries would wait for the other.
	if !l.kinds[kind] || strings.HasPrefix(idempotencyKey, barrierPrefix) || strings.HasSuffix(idempotencyKey, ".after") {
		return ""
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(idempotencyKey))
	switch sum := h.Sum64(); {
	case sum%4 == 0:
		return ""
	default:
		return strconv.FormatUint(sum/4%l.keys, 10)
	}
}

func (l *ordering) hasPosition(state compensator.State) bool {
	return !state.Terminal() || state == compensator.Dead && !l.passDead
}

func (n *instance) knowsSerial(kind string) bool {
	return n.handles(kind) && (n.runs || !n.w.apart.ordering.ignorant || n.number%2 == 0)
}

func (n *instance) ordered(kind string) (cfg compensator.TypeConfig) {
	l := &n.w.apart.ordering
	if l.kinds[kind] && n.knowsSerial(kind) {
		cfg.Serial = func(e *compensator.Entry) string { return l.key(e.BusinessType, string(e.IdempotencyKey)) }
		cfg.PassDead = l.passDead
	}
	cfg.Limit = n.w.apart.limits[kind]
	return cfg
}

func (o *oracle) checkOrderLocked(l *rowHistory, a *attempt) {
	lines := &o.w.apart.ordering
	key := lines.key(l.kind, l.key)
	if key == "" || !o.isLeasedLocked(l, a) {
		return
	}
	claimed := l.steps[a.version].at
	for _, id := range o.idsLocked() {
		other := o.histories[id]
		if other == l || lines.key(other.kind, other.key) != key || other.kind != l.kind {
			continue
		}
		if lines.hasPosition(other.last().row.State) && other.last().op.kind != opPurge {
			o.sights[sawOrdering]++
		}
		for _, b := range other.attempts {
			if !b.ended && !b.from.dead.Load() && o.isLeasedLocked(other, b) {
				o.failLocked("G30: entry %s starts on instance %d while entry %s of its key runs on instance %d", l.id, a.from.number, other.id, b.from.number)
			}
		}
		if o.isInFrontLocked(other, l) && o.wasCountingLocked(other, claimed) {
			o.failLocked("G30: entry %s starts before entry %s, which precedes it under its key", l.id, other.id)
		}
	}
}

// If one call records several entries, their positions are in the order in which the call lists them. An entry that
// lost its position gets its own id as its new position.
func (o *oracle) isInFrontLocked(other, l *rowHistory) bool {
	for _, a := range []compensator.EntryID{other.id, o.orderIDLocked(other)} {
		for _, b := range []compensator.EntryID{l.id, o.orderIDLocked(l)} {
			if moved := a != o.orderIDLocked(other) || b != o.orderIDLocked(l); moved && !o.mayBeRenotedLocked(other) && !o.mayBeRenotedLocked(l) {
				continue
			}
			if a.Compare(b) >= 0 {
				return false
			}
		}
	}
	return true
}

func (o *oracle) mayBeRenotedLocked(l *rowHistory) bool {
	return slices.ContainsFunc(l.steps, func(s transition) bool { return s.row.State.Terminal() }) || l.steps[0].op.from == nil
}

func (o *oracle) orderIDLocked(l *rowHistory) compensator.EntryID {
	lines, inserted := &o.w.apart.ordering, l.steps[0].op
	if inserted.from == nil || !inserted.from.knowsSerial(l.kind) || l.steps[0].row.State.Terminal() {
		return l.id
	}
	key := lines.key(l.kind, l.key)
	var ids []compensator.EntryID
	rank := 0
	for _, other := range o.histories {
		if other.steps[0].op == inserted && other.kind == l.kind && lines.key(other.kind, other.key) == key && !other.steps[0].row.State.Terminal() {
			ids = append(ids, other.id)
		}
	}
	for _, d := range inserted.drafts {
		if string(d.IdempotencyKey) == l.key {
			break
		}
		inserted := func(other *rowHistory) bool {
			return other.steps[0].op == inserted && other.key == string(d.IdempotencyKey)
		}
		if d.BusinessType == l.kind && !d.Done && lines.key(l.kind, string(d.IdempotencyKey)) == key && o.anyLocked(inserted) {
			rank++
		}
	}
	slices.SortFunc(ids, compensator.EntryID.Compare)
	if ids[rank] != l.id {
		o.sights[sawPlaced]++
	}
	return ids[rank]
}

func (o *oracle) anyLocked(is func(*rowHistory) bool) bool {
	for _, l := range o.histories {
		if is(l) {
			return true
		}
	}
	return false
}

func (o *oracle) noteBlocked(ids []compensator.EntryID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := &o.w.apart.ordering
	for _, id := range ids {
		l := o.histories[id]
		if l == nil {
			continue
		}
		l.blocked = true
		o.sights[sawBlocked]++
		key := lines.key(l.kind, l.key)
		if !o.anyLocked(func(other *rowHistory) bool {
			return other != l && other.kind == l.kind && lines.key(other.kind, other.key) == key && lines.hasPosition(other.last().row.State) && other.last().op.kind != opPurge
		}) {
			o.failLocked("G30: entry %s is reported as blocked, but no other entry has a position under its key", id)
		}
	}
}

func (o *oracle) isLeasedLocked(l *rowHistory, a *attempt) bool {
	return l.holdsLocked(a.version) && time.Since(l.steps[a.version].at) < o.w.configOf(a.from).Lease && !o.w.plan.active[storeJump]
}

// wasCountingLocked reports whether an entry has a position under its ordering key, and whether the position was known
// before a time, the parameter before. If the recording instance knew the type as serial, the position is known from
// the insert. Otherwise the position is known from the first attempt of the entry.
func (o *oracle) wasCountingLocked(l *rowHistory, before time.Time) bool {
	lines := &o.w.apart.ordering
	stands, known := false, false
	for i, s := range l.steps {
		now := s.op.kind != opPurge && lines.hasPosition(s.row.State)
		if now && !stands {
			known = s.op.kind == opInsert && s.op.from.knowsSerial(l.kind) && s.at.Before(before)
		}
		stands = now
		for _, a := range l.attempts {
			known = known || stands && a.version == uint64(i) && a.at.Before(before)
		}
	}
	return stands && known
}

func (o *oracle) checkBlockLocked(l *rowHistory, before, after processlog.Row) {
	if after.NextAt.Equal(before.NextAt) {
		return
	}
	o.sights[sawPutBack]++
	if o.w.apart.ordering.key(l.kind, l.key) == "" || after.DueIn <= 0 {
		o.failLocked("G30: entry %s has no ordering key, but was put back as blocked for %v", l.id, after.DueIn)
	}
}

// checkWakeLocked asserts G9 (nothing starts early) for a change that only makes an entry due. The entry must be
// blocked and have no lease. A blocked entry was due already when it was claimed and put back, so its new due time is
// not early.
func (o *oracle) checkWakeLocked(l *rowHistory, before, after processlog.Row) {
	if o.isFencedLocked(l, before, after) {
		return
	}
	o.sights[sawWoken]++
	last := l.last()
	blocked := last.op.kind == opRelease && len(l.steps) > 1 && !last.row.NextAt.Equal(l.steps[len(l.steps)-2].row.NextAt)
	if !blocked || before.LeaseLeft > 0 || after.LeaseLeft > 0 || after.State != before.State || after.Epoch != before.Epoch {
		o.failLocked("G9: entry %s was made due, from %+v to %+v", l.id, before, after)
	}
}

func (w *world) letPass() {
	l := &w.apart.ordering
	if l.kinds == nil || l.passDead {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	for _, row := range w.store.Rows() {
		if n := w.alive(0); n != nil && row.State == compensator.Dead && l.key(row.BusinessType, string(row.IdempotencyKey)) != "" {
			w.oracle.noteRequest(processlog.ActionSettleManually, false, row.ID)
			_ = admin.Of(n.c).SettleManually(ctx, row.ID, admin.AuditInfo{Actor: "ann", Reason: "others wait"})
		}
	}
}

func (w *world) orderingTimeout() time.Duration {
	if w.apart.ordering.kinds == nil {
		return 0
	}
	each := w.plan.config.Lease + w.plan.types.Timeout + 2*w.plan.config.ReconcileInterval
	return time.Duration(len(w.store.Rows())) * each
}
