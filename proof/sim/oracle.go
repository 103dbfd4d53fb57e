package sim

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// The texts of violations contain the promises' numbers from docs/reference/guarantees.md.
type oracle struct {
	w      *world
	failed atomic.Bool
	ended  chan struct{}

	// resting holds a value if an entry has come to rest since the script last checked all entries.
	resting chan struct{}

	mu        sync.Mutex // guards the fields below it
	verdict   string
	at        int
	ops       map[processlog.Token]*operation
	claimed   int
	histories map[compensator.EntryID]*rowHistory
	keys      map[string]*rowHistory
	orders    map[string]*keyFate
	wished    map[string][]wish
	asked     map[deedOn]bool
	open      int
	effect    map[effect]int
	done      map[workDone]int
	working   map[string]int
	crowded   map[string]bool // types that at some time had more work than half of an instance's slots allow

	transitions int

	counts   map[string]*countedMinute
	listings map[processlog.InstanceID]*listing
	losses   []time.Time
	goOn     time.Time
	purged   bool // whether a person has purged entries, which may have been young

	pausedType string
	pausedAt   time.Time
	pauseEnds  time.Time // when it ends by itself, by the database's clock; zero: only a person ends it
	calmSince  time.Time

	keeping bool // whether the library may purge entries that are old enough

	rebuilding map[processlog.Token]time.Time
	opened     map[breakerOn]*opening
	// The map looks has a value for each admitted entry that must run after a batch. The value is the breaker that was
	// open at the admission, or nil. The engine checks only after the admission whether the batch has ended.
	looks  map[lookedAt]*opening
	sights [sights]int

	grants  map[limitKey][]grant
	forgot  int                                   // number of losses when the field grants was last emptied
	permits map[limitKey]map[processlog.Held]bool // claims that began with a permit, by limit and key
}

type opKind int

const (
	opInsert opKind = iota
	opClaim
	opSettle
	opChange
	opRelease
	opPurge
)

var opNames = [...]string{opInsert: "recorded", opClaim: "claimed", opSettle: "settled", opChange: "changed", opRelease: "released", opPurge: "purged"}

// operation is a write that an instance has sent to the database. If the instance got no answer, the database may have
// carried out the write or not. A row that holds the token of an operation was written by this operation.
type operation struct {
	kind     opKind
	from     *instance
	drafts   []processlog.Draft
	want     []processlog.Wanted
	outcomes []processlog.Outcome
	change   processlog.Change
	seen     map[compensator.EntryID]uint64 // for a change of several entries: the version of each entry that the caller saw
	inTx     bool
	unknown  bool // for an insert: whether its COMMIT got no answer
	failed   bool
	back     map[compensator.EntryID]bool // for a claim: entries that the instance released, or tried to release
	number   int                          // number of the claim, once the database has made it
}

type rowHistory struct {
	id       compensator.EntryID
	key      string
	kind     string
	content  []byte
	steps    []transition
	attempts []*attempt
	readBy   map[*instance]uint64 // version of the row that each instance has read, plus 1
	blocked  bool
}

type transition struct {
	op      *operation
	outcome processlog.Outcome
	row     processlog.Row
	at      time.Time
	// counts is set for a claim by an instance that still holds an earlier attempt of the entry. Such a claim may only
	// count a lost lease, so the claim need not start an attempt.
	counts bool

	started  bool // for a claim: whether the engine has started the attempt, even if no handler was called yet
	answered bool // for a claim: whether the database has answered the write of the attempt's outcome
}

type attempt struct {
	from       *instance
	ctx        context.Context
	id         compensator.EntryID
	kind       string
	version    uint64
	epoch      uint32
	lost       int // number of consecutive lost leases before this attempt
	compensate bool
	start      int // number of attempts before this one
	at         time.Time

	manner  manner // guarded by oracle.mu, like the fields below it
	asked   time.Duration
	ended   bool
	endedAt time.Time
	lostAt  time.Time
	stored  bool // whether the database has stored the outcome, or refused it for good
	told    bool // whether the library had ended the attempt's context when the handler decided on its result
	refused bool // whether the database refuses the outcome for now; checkQuarantineLocked then ignores the attempt
	acted   bool

	repeated bool // whether the entry ran again alone under the same claim, because its batch had no result
}

func (op *operation) draft(key processlog.IdempotencyKey) (found processlog.Draft) {
	for _, d := range op.drafts {
		if d.IdempotencyKey == key {
			found = d
		}
	}
	return found
}

func (op *operation) outcome(id compensator.EntryID) (out processlog.Outcome, found bool) {
	i := slices.IndexFunc(op.outcomes, func(out processlog.Outcome) bool { return out.ID == id })
	if i < 0 {
		return processlog.Outcome{}, false
	}
	return op.outcomes[i], true
}

// If the claiming instance has inserted the entry with a lease, the token is the lease's token. Otherwise the token is
// zero.
func (op *operation) wants(id compensator.EntryID, token processlog.Token) bool {
	return slices.Contains(op.want, processlog.Wanted{ID: id, Token: token})
}

func newOracle(w *world) *oracle {
	return &oracle{
		w: w, ended: make(chan struct{}), resting: make(chan struct{}, 1), ops: make(map[processlog.Token]*operation), histories: make(map[compensator.EntryID]*rowHistory),
		keys: make(map[string]*rowHistory), orders: make(map[string]*keyFate), wished: make(map[string][]wish), asked: make(map[deedOn]bool), effect: make(map[effect]int), done: make(map[workDone]int),
		working: make(map[string]int), crowded: make(map[string]bool), rebuilding: make(map[processlog.Token]time.Time),
	}
}

func (o *oracle) fail(format string, values ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failLocked(format, values...)
}

func (o *oracle) failLocked(format string, values ...any) {
	if o.verdict == "" && (len(o.losses) == 0 || strings.HasPrefix(format, lossPromise)) {
		o.verdict = fmt.Sprintf(format, values...)
		o.at = len(o.w.walk.list)
		o.failed.Store(true)
		close(o.ended)
	}
}

func (o *oracle) readCounts(count func(*oracle)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	count(o)
}

func (o *oracle) noteOperation(token processlog.Token, op *operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if first := o.ops[token]; first != nil && first.kind == opSettle {
		o.checkSameOfferLocked(first, op)
	}
	o.ops[token] = op
}

// An instance sends an outcome again if the database did not store it, because a row was locked or a trigger refused
// the change.
func (o *oracle) checkSameOfferLocked(first, again *operation) {
	if again.kind != opSettle || again.from != first.from {
		o.failLocked("G4: a write of instance %d carries the token of outcomes from instance %d", again.from.number, first.from.number)
		return
	}
	for _, out := range first.outcomes {
		offered, found := again.outcome(out.ID)
		switch {
		case !found:
			again.outcomes = append(again.outcomes, out)
		case offered.Version != out.Version || offered.Epoch != out.Epoch || offered.To != out.To:
			o.failLocked("G4: the outcome of entry %s was %s for version %d, but is offered again as %s for version %d", out.ID, out.To, out.Version, offered.To, offered.Version)
		}
	}
}

func (o *oracle) numberClaim(op *operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.claimed++
	op.number = o.claimed
}

func (o *oracle) claimOf(token processlog.Token) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if op := o.ops[token]; op != nil {
		return op.number
	}
	return 0
}

func (o *oracle) checkEffects(list []effect) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range list {
		if o.effect[e]++; o.effect[e] > 1 {
			o.failLocked("G5: the effect of entry %s, epoch %d, compensation %v, happened twice", e.id, e.epoch, e.compensate)
		}
	}
}

func (o *oracle) noteRows(n *instance, rows []processlog.Row) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, row := range rows {
		if l := o.histories[row.ID]; l != nil {
			l.readBy[n] = max(l.readBy[n], row.Version+1)
		}
	}
}

// The store calls checkTransition for each change, while the store is locked.
func (o *oracle) checkTransition(before, after processlog.Row) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.transitions++
	switch {
	case len(o.losses) > 0:
		o.checkAfterLossLocked(before, after)
		o.wakeScriptLocked()
	case before.ID.IsZero():
		o.checkInsertLocked(after)
	case after.ID.IsZero():
		o.checkPurgeLocked(before)
	default:
		o.checkChangeLocked(before, after)
	}
}

func (o *oracle) checkInsertLocked(row processlog.Row) {
	op := o.ops[row.Token]
	if op == nil || op.kind != opInsert {
		o.failLocked("G2: entry %s exists, but no transaction recorded it", row.ID)
		return
	}
	if o.keys[string(row.IdempotencyKey)] != nil {
		o.failLocked("G11: idempotency key %q has a second row", row.IdempotencyKey)
	}
	if row.Version != 0 || row.State != compensator.Pending && row.State != compensator.Succeeded || row.Epoch != 0 || row.ProcessCount != 0 || row.DeliveryCount > 1 {
		o.failLocked("G4: entry %s is inserted as %+v", row.ID, row)
	}
	if row.DeliveryCount == 1 && (row.DueIn > 0 && o.w.storeShift == 0 || op.draft(row.IdempotencyKey).Delay > 0) {
		o.failLocked("G9: entry %s is inserted with a lease, but due in %v", row.ID, row.DueIn)
	}
	l := &rowHistory{id: row.ID, key: string(row.IdempotencyKey), kind: row.BusinessType, content: row.Content, readBy: make(map[*instance]uint64)}
	l.steps = append(l.steps, transition{op: op, row: row, at: time.Now()})
	o.histories[row.ID], o.keys[string(row.IdempotencyKey)] = l, l
	o.checkRecordedLocked(row, op)
	fate := o.fateLocked(string(row.IdempotencyKey))
	fate.rows++
	fate.kinds[row.BusinessType] = true
	o.checkSlotLocked(row, fate)
	if row.DeliveryCount == 1 {
		o.checkNotPausedLocked(l, op.from)
	}
	if !row.State.Terminal() {
		o.countLocked(l.kind, 1)
	}
}

func (o *oracle) checkPurgeLocked(row processlog.Row) {
	o.sights[sawPurged]++
	l := o.histories[row.ID]
	if !row.State.Terminal() {
		o.failLocked("G1: entry %s was purged while it was %s", row.ID, row.State)
		return
	}
	o.checkKeptLocked(row)
	delete(o.keys, l.key)
	l.steps = append(l.steps, transition{op: &operation{kind: opPurge}, row: row})
}

func (o *oracle) checkChangeLocked(before, after processlog.Row) {
	l := o.histories[after.ID]
	op := o.ops[after.Token]
	if after.Token == before.Token {
		op = &operation{kind: opRelease}
	}
	if op == nil {
		o.failLocked("G4: entry %s was changed by a write that no instance made", after.ID)
		return
	}
	if after.Version != before.Version+1 || before.Version != l.last().row.Version {
		o.failLocked("G4: entry %s changed from version %d to %d, but its last version was %d", after.ID, before.Version, after.Version, l.last().row.Version)
	}
	erases := op.kind == opChange && op.change.Action == processlog.ActionErase
	if erases {
		l.content = nil
		o.checkErasureLocked(before, after)
	}
	if !bytes.Equal(after.Content, l.content) || after.BusinessType != l.kind || string(after.IdempotencyKey) != l.key {
		o.failLocked("G11: the recorded fields of entry %s have changed", after.ID)
	}
	if before.State.Terminal() && (op.kind != opChange || after.Epoch != before.Epoch+1) {
		o.checkEndedAgainLocked(l, op, before, after)
	}
	if l.kind == strayType && op.kind != opChange {
		o.failLocked("G18: entry %s was changed, but its type has no handler", after.ID)
	}
	if op.kind == opClaim && !op.from.handles(l.kind) {
		o.failLocked("G18: entry %s of type %s was claimed by instance %d, which has no handler for this type", after.ID, l.kind, op.from.number)
	}
	t := transition{op: op, row: after, at: time.Now()}
	switch op.kind {
	case opClaim:
		o.checkClaimLocked(l, before, after, &t)
	case opRelease:
		o.checkReleaseLocked(l, before, after)
	case opSettle:
		o.checkSettleLocked(l, before, after, &t)
	case opChange:
		o.checkActionLocked(before, after, op)
	default:
		o.failLocked("G4: entry %s was changed by an insert", after.ID)
	}
	o.checkResultLocked(l, &t, before)
	l.steps = append(l.steps, t)
	switch {
	case after.State.Terminal() && !before.State.Terminal():
		o.countLocked(l.kind, -1)
	case before.State.Terminal() && !after.State.Terminal():
		o.countLocked(l.kind, 1)
	}
}

func (o *oracle) countLocked(kind string, change int) {
	if kind == strayType {
		return
	}
	if o.open += change; o.open == 0 {
		o.wakeScriptLocked()
	}
	o.working[kind] += change
	o.crowded[kind] = o.crowded[kind] || o.working[kind] > spareSlots
}

func (o *oracle) wakeScriptLocked() {
	select {
	case o.resting <- struct{}{}:
	default:
	}
}

func (l *rowHistory) last() *transition { return &l.steps[len(l.steps)-1] }

func (o *oracle) checkClaimLocked(l *rowHistory, before, after processlog.Row, t *transition) {
	inserted := l.last().op
	own := before.Version == 0 && before.DeliveryCount == 1 && inserted.kind == opInsert && inserted.from == t.op.from && t.op.wants(after.ID, before.Token)
	deliveries := before.DeliveryCount + 1
	if own {
		deliveries--
	}
	switch {
	case before.DueIn > 0:
		o.failLocked("G9: entry %s was claimed %v early", after.ID, before.DueIn)
	case before.LeaseLeft > 0 && !own:
		o.failLocked("G16: entry %s was claimed while another lease was valid for %v", after.ID, before.LeaseLeft)
	case after.State != before.State || after.Epoch != before.Epoch || after.ProcessCount != before.ProcessCount || after.CompensateCount != before.CompensateCount:
		o.failLocked("G4: a claim changed entry %s from %+v to %+v", after.ID, before, after)
	case after.DeliveryCount != deliveries || after.LeaseLeft <= 0:
		o.failLocked("G4: the claim of entry %s counts %d deliveries after %d, with a lease of %v", after.ID, after.DeliveryCount, before.DeliveryCount, after.LeaseLeft)
	}
	if before.DeliveryCount > 0 && !own {
		o.sights[sawExpired]++
	}
	o.checkRenewalLocked(l, before)
	o.checkUnheldLocked(l, t.op, before)
	t.counts = l.unsettled(t.op.from, before.Epoch)
	o.checkPromptClaimLocked(l, before)
	o.checkNotPausedLocked(l, t.op.from)
}

func (o *oracle) checkReleaseLocked(l *rowHistory, before, after processlog.Row) {
	if after.DeliveryCount == before.DeliveryCount {
		o.checkWakeLocked(l, before, after)
		return
	}
	o.checkBlockLocked(l, before, after)
	if after.DeliveryCount != before.DeliveryCount-1 || after.LeaseLeft > 0 || after.State != before.State || after.Epoch != before.Epoch {
		o.failLocked("G4: a release changed entry %s from %+v to %+v", after.ID, before, after)
	}
	for _, a := range l.attempts {
		if a.version == before.Version && !a.from.dead.Load() {
			o.failLocked("G4: the lease of entry %s was released as unused, but a handler ran for version %d", after.ID, before.Version)
		}
	}
}
