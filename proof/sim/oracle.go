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

// oracle sees every committed transition of every row and every attempt, and says at once what must not be.
// The numbers are those of the promises in docs/guarantees.md.
type oracle struct {
	w      *world
	failed atomic.Bool
	ended  chan struct{} // closed with the first violation

	resting chan struct{} // holds one when the last open entry may have come to rest since somebody looked

	mu      sync.Mutex // guards what follows
	verdict string     // the first violation
	at      int        // how many steps the walk had then
	ops     map[processlog.Token]*operation
	claimed int // how many claims were done
	lives   map[compensator.EntryID]*life
	keys    map[string]*life // retained rows by idempotency key
	orders  map[string]*keyFate
	wished  map[string][]wish // by idempotency key
	asked   map[deedOn]bool
	open    int // rows of handled types that are not at rest
	effect  map[effect]int
	done    map[done]int
	working map[string]int  // by business type, as open
	crowded map[string]bool // types that ever had more to do at once than an instance has slots to spare

	losses []time.Time // when the database went back
	goOn   time.Time   // when a person last said go on
	purged bool        // young entries may have been

	pausedType string    // by a person; "": none is
	pausedAt   time.Time // since when
	calmSince  time.Time // when all was healed

	keeping bool // what is purged just now was kept as long as it is to be

	rebuilding map[processlog.Token]time.Time // since when
	opened     map[breakerOn]*opening         // breakers
	looks      map[lookedAt]*opening          // of entries that come after a batch: what was open when they were let in
	sights     [sights]int
}

// opKind is what a write does.
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

// operation is a write under way or done; its token in a row proves that it was the one.
type operation struct {
	kind     opKind
	from     *instance
	drafts   []processlog.Draft
	want     []processlog.Wanted
	outcomes []processlog.Outcome
	change   processlog.Change
	seen     map[compensator.EntryID]uint64 // of a requeue of several: the versions that were seen
	inTx     bool                           // a change in a caller's transaction
	unknown  bool                           // an insert whose COMMIT was not answered
	failed   bool                           // a claim that was answered with an error
	back     map[compensator.EntryID]bool   // of a claim: what was given back, or tried to be
	number   int                            // of a claim that was done
}

// life is all that ever happened to one row.
type life struct {
	id       compensator.EntryID
	key      string
	kind     string // business type
	content  []byte
	steps    []transition
	attempts []*attempt
	readBy   map[*instance]uint64 // version 0 read back: 1 + version
	blocked  bool                 // an instance was told that another of its key blocks it
}

// transition is one version of a row.
type transition struct {
	op      *operation
	outcome processlog.Outcome
	row     processlog.Row // as it left it
	at      time.Time
	counts  bool // a claim that may be there to count a lease against a handler that is stuck: nothing of it runs
}

// attempt is one run of a handler.
type attempt struct {
	from       *instance
	ctx        context.Context
	id         compensator.EntryID
	kind       string
	version    uint64
	epoch      uint32
	lost       int // leases in a row before
	compensate bool
	start      int // how many came before it
	at         time.Time

	manner  manner        // guarded by oracle.mu, as the rest
	asked   time.Duration // to be called again after
	ended   bool
	endedAt time.Time
	lostAt  time.Time // when this instance was told that the lease is lost
	stored  bool      // the database has taken its outcome, or refused it for good
	refused bool      // the database has refused to change its row for now, so it waits outside the quarantine

	repeated bool // its batch came to nothing, and the entry runs again alone: what it held is that attempt's
}

func (op *operation) draft(key processlog.IdempotencyKey) (found processlog.Draft) {
	for _, d := range op.drafts {
		if d.IdempotencyKey == key {
			found = d
		}
	}
	return found
}

// wants reports whether a claim takes an entry for its own instance's, by the token of its row.
func (op *operation) wants(id compensator.EntryID, token processlog.Token) bool {
	return slices.Contains(op.want, processlog.Wanted{ID: id, Token: token})
}

func newOracle(w *world) *oracle {
	return &oracle{
		w: w, ended: make(chan struct{}), resting: make(chan struct{}, 1), ops: make(map[processlog.Token]*operation), lives: make(map[compensator.EntryID]*life),
		keys: make(map[string]*life), orders: make(map[string]*keyFate), wished: make(map[string][]wish), asked: make(map[deedOn]bool), effect: make(map[effect]int), done: make(map[done]int),
		working: make(map[string]int), crowded: make(map[string]bool), rebuilding: make(map[processlog.Token]time.Time),
	}
}

// fail notes the first violation; the world ends with it.
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

func (o *oracle) note(count func(*oracle)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	count(o)
}

// operation takes note of a write before it is sent.
func (o *oracle) operation(token processlog.Token, op *operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ops[token] = op
}

// claims numbers a claim that is done.
func (o *oracle) claims(op *operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.claimed++
	op.number = o.claimed
}

// claimOf is the number of the claim that was done under a token; 0: none was.
func (o *oracle) claimOf(token processlog.Token) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if op := o.ops[token]; op != nil {
		return op.number
	}
	return 0
}

// effects takes the effects of a transaction that has committed. G5: at most one of each.
func (o *oracle) effects(list []effect) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range list {
		if o.effect[e]++; o.effect[e] > 1 {
			o.failLocked("G5: effect of entry %s, epoch %d, compensation %v, happened twice", e.id, e.epoch, e.compensate)
		}
	}
}

// read takes note of rows an instance was given by the store.
func (o *oracle) read(n *instance, rows []processlog.Row) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, row := range rows {
		if l := o.lives[row.ID]; l != nil {
			l.readBy[n] = max(l.readBy[n], row.Version+1)
		}
	}
}

// saw is the store's watch. It runs while the store is locked.
func (o *oracle) saw(before, after processlog.Row) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case len(o.losses) > 0:
		o.afterLossLocked(before, after)
		o.mayRestLocked() // nobody counts after a loss
	case before.ID.IsZero():
		o.insertedLocked(after)
	case after.ID.IsZero():
		o.purgedLocked(before)
	default:
		o.changedLocked(before, after)
	}
}

func (o *oracle) insertedLocked(row processlog.Row) {
	op := o.ops[row.Token]
	if op == nil || op.kind != opInsert {
		o.failLocked("G2: entry %s exists, and nobody recorded it", row.ID)
		return
	}
	if o.keys[string(row.IdempotencyKey)] != nil {
		o.failLocked("G11: a second row for idempotent id %q", row.IdempotencyKey)
	}
	if row.Version != 0 || row.State != compensator.Pending && row.State != compensator.Succeeded || row.Epoch != 0 || row.ProcessCount != 0 || row.DeliveryCount > 1 {
		o.failLocked("G4: entry %s is born as %+v", row.ID, row)
	}
	if row.DeliveryCount == 1 && (row.DueIn > 0 && o.w.storeShift == 0 || op.draft(row.IdempotencyKey).Delay > 0) {
		o.failLocked("G9: entry %s is born claimed and due in %v", row.ID, row.DueIn)
	}
	l := &life{id: row.ID, key: string(row.IdempotencyKey), kind: row.BusinessType, content: row.Content, readBy: make(map[*instance]uint64)}
	l.steps = append(l.steps, transition{op: op, row: row, at: time.Now()})
	o.lives[row.ID], o.keys[string(row.IdempotencyKey)] = l, l
	o.asWishedLocked(row, op)
	fate := o.fateLocked(string(row.IdempotencyKey))
	fate.rows++
	fate.kinds[row.BusinessType] = true
	o.slotLocked(row, fate)
	if row.DeliveryCount == 1 {
		o.unpausedLocked(l, op.from)
	}
	if !row.State.Terminal() {
		o.countLocked(l.kind, 1)
	}
}

func (o *oracle) purgedLocked(row processlog.Row) {
	o.sights[sawPurged]++
	l := o.lives[row.ID]
	if !row.State.Terminal() {
		o.failLocked("G1: entry %s was purged while it was %s", row.ID, row.State)
		return
	}
	o.keptLocked(row)
	delete(o.keys, l.key)
	l.steps = append(l.steps, transition{op: &operation{kind: opPurge}, row: row})
}

func (o *oracle) changedLocked(before, after processlog.Row) {
	l := o.lives[after.ID]
	op := o.ops[after.Token]
	if after.Token == before.Token {
		op = &operation{kind: opRelease}
	}
	if op == nil {
		o.failLocked("G4: entry %s changed by a write nobody made", after.ID)
		return
	}
	if after.Version != before.Version+1 || before.Version != l.last().row.Version {
		o.failLocked("G4: entry %s went from version %d to %d, having had %d", after.ID, before.Version, after.Version, l.last().row.Version)
	}
	erases := op.kind == opChange && op.change.Action == compensator.ActionErase
	if erases {
		l.content = nil
		o.erasedLocked(before, after)
	}
	if !bytes.Equal(after.Content, l.content) || after.BusinessType != l.kind || string(after.IdempotencyKey) != l.key {
		o.failLocked("G11: what was recorded of entry %s has changed", after.ID)
	}
	if before.State.Terminal() && (op.kind != opChange || after.Epoch != before.Epoch+1) {
		o.endedAnewLocked(l, op, before, after)
	}
	if l.kind == strayType && op.kind != opChange {
		o.failLocked("G18: entry %s of a type nobody handles was touched", after.ID)
	}
	if op.kind == opClaim && !op.from.handles(l.kind) {
		o.failLocked("G18: entry %s of %s was claimed by instance %d, which does not handle it", after.ID, l.kind, op.from.number)
	}
	t := transition{op: op, row: after, at: time.Now()}
	switch op.kind {
	case opClaim:
		o.claimedLocked(l, before, after, &t)
	case opRelease:
		o.releasedLocked(l, before, after)
	case opSettle:
		o.settledLocked(l, before, after, &t)
	case opChange:
		o.actedLocked(before, after, op)
	default:
		o.failLocked("G4: entry %s changed by an insert", after.ID)
	}
	l.steps = append(l.steps, t)
	switch {
	case after.State.Terminal() && !before.State.Terminal():
		o.countLocked(l.kind, -1)
	case before.State.Terminal() && !after.State.Terminal():
		o.countLocked(l.kind, 1)
	}
}

// countLocked counts the rows that are not at rest.
func (o *oracle) countLocked(kind string, change int) {
	if kind == strayType {
		return
	}
	if o.open += change; o.open == 0 {
		o.mayRestLocked()
	}
	o.working[kind] += change
	o.crowded[kind] = o.crowded[kind] || o.working[kind] > spareSlots
}

// mayRestLocked tells the script to look whether all is at rest.
func (o *oracle) mayRestLocked() {
	select {
	case o.resting <- struct{}{}:
	default:
	}
}

func (l *life) last() *transition { return &l.steps[len(l.steps)-1] }

// claimedLocked: G9 not early; nobody else's lease; the delivery is counted.
func (o *oracle) claimedLocked(l *life, before, after processlog.Row, t *transition) {
	inserted := l.last().op
	own := before.Version == 0 && before.DeliveryCount == 1 && inserted.kind == opInsert && inserted.from == t.op.from && t.op.wants(after.ID, before.Token)
	deliveries := before.DeliveryCount + 1
	if own { // the INSERT has counted it
		deliveries--
	}
	switch {
	case before.DueIn > 0:
		o.failLocked("G9: entry %s was claimed %v early", after.ID, before.DueIn)
	case before.LeaseLeft > 0 && !own:
		o.failLocked("G16: entry %s was claimed while somebody held it for %v more", after.ID, before.LeaseLeft)
	case after.State != before.State || after.Epoch != before.Epoch || after.ProcessCount != before.ProcessCount || after.CompensateCount != before.CompensateCount:
		o.failLocked("G4: a claim changed entry %s from %+v to %+v", after.ID, before, after)
	case after.DeliveryCount != deliveries || after.LeaseLeft <= 0:
		o.failLocked("G4: the claim of entry %s counts %d deliveries after %d, and holds %v", after.ID, after.DeliveryCount, before.DeliveryCount, after.LeaseLeft)
	}
	if before.DeliveryCount > 0 && !own {
		o.sights[sawExpired]++
	}
	o.renewedLocked(l, before)
	o.unheldLocked(l, t.op, before)
	t.counts = l.unsettled(t.op.from, before.Epoch)
	o.promptlyClaimedLocked(l, before)
	o.unpausedLocked(l, t.op.from)
}

func (o *oracle) releasedLocked(l *life, before, after processlog.Row) {
	if after.DeliveryCount == before.DeliveryCount {
		o.wokenLocked(l, before, after)
		return
	}
	o.blockedLocked(l, before, after)
	if after.DeliveryCount != before.DeliveryCount-1 || after.LeaseLeft > 0 || after.State != before.State || after.Epoch != before.Epoch {
		o.failLocked("G4: a release changed entry %s from %+v to %+v", after.ID, before, after)
	}
	for _, a := range l.attempts {
		if a.version == before.Version && !a.from.dead.Load() {
			o.failLocked("G4: the lease of entry %s was given back as unused, but version %d ran", after.ID, before.Version)
		}
	}
}
