package engine

import (
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/processlog"
)

// peekInterval is the longest time that a scanner sleeps, and that a source is not asked. A lost wake-up costs no more. See
// peekEvery.
const peekInterval = 5 * time.Second

// claimSchedule is when each type is worth a claim. Whoever learns of an entry that comes due, or of a slot that is free, tells it;
// the scanner works it off.
type claimSchedule struct {
	types *types
	wake  chan struct{} // the scanner may be asleep; room for one, so that what is told while it works is not lost

	mu     sync.Mutex // guards the fields below; taken before the mutex of a type's slots, never after it
	names  []string   // of the types, sorted; as they are when Run begins
	byType map[string]*typeSchedule
}

func newClaimSchedule(t *types) *claimSchedule {
	return &claimSchedule{types: t, wake: make(chan struct{}, 1), byType: make(map[string]*typeSchedule)}
}

// prepare makes everything worth a claim at once, for a Run that begins; what waits for others is worth a look.
func (a *claimSchedule) prepare() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names = a.types.names()
	for _, name := range a.names {
		t := a.types.named(name)
		// Claimed at once, entries would wait for less whenever a process starts, and new ones for nothing that this claim still
		// meets. As if one had just come due it is looked since when the first one is, and whether they are a batch.
		a.byType[name] = &typeSchedule{due: time.Now().Add(t.BatchWait), pace: groupcommit.Pace{Most: claimPace}, ahead: newReadAhead(), linger: linger{wait: t.BatchWait, batch: t.BatchSize}}
	}
}

// Wake wakes the scanner.
func (a *claimSchedule) Wake() {
	select {
	case a.wake <- struct{}{}:
	default: // it is to wake already
	}
}

// expect makes the scanner look at a type in at most in, and as much later as its entries wait for others.
func (a *claimSchedule) expect(businessType string, in time.Duration) {
	now := time.Now()
	a.mu.Lock()
	typeSchedule := a.byType[businessType]
	news := false
	if typeSchedule != nil {
		filled := in <= 0 && typeSchedule.filled()
		in = min(in, processlog.Never-typeSchedule.wait) // never is the longest there is
		news = typeSchedule.notify(now.Add(max(0, in+typeSchedule.wait))) || filled
	}
	a.mu.Unlock()
	if news {
		a.Wake()
	}
}

// notify takes the news from another process that an entry is due. It reports whether the source is to be asked when: the entries
// of the type wait for others from then on.
func (a *claimSchedule) notify(businessType string) (ask bool) {
	var in time.Duration
	a.mu.Lock()
	// One process gets the entry. The others come for nothing, and the more often they do, the later they come.
	typeSchedule := a.byType[businessType]
	if typeSchedule != nil {
		in = typeSchedule.holdBack()
	}
	waits := typeSchedule != nil && typeSchedule.wait > 0
	if waits {
		typeSchedule.notified++ // an answer that the queue was asked for before does not know of it
	}
	ask = waits && !typeSchedule.lingers(time.Now())
	a.mu.Unlock()
	if waits {
		a.Wake()
		return ask
	}
	a.expect(businessType, in)
	return false
}

// free gives slots of a type back; entries may be waiting for them.
func (a *claimSchedule) free(t *Type, n int) {
	t.slots.Release(n)
	a.freed(t)
}

// cancel gives the slots back that a reservation holds.
func (a *claimSchedule) cancel(businessType string, reservation Reservation) {
	t := a.types.named(businessType)
	// A reservation that has lapsed is given back already: use counts none twice.
	reservation.Use(0)
	a.freed(t)
}

// freed tells that a slot of a type is free, which matters only while more entries are due.
func (a *claimSchedule) freed(t *Type) {
	a.mu.Lock()
	typeSchedule := a.byType[t.Name]
	// A handler that returns while nothing more is due must not have the scanner look at every type.
	hungry := typeSchedule != nil && (typeSchedule.wants(t, time.Now()) || typeSchedule.lingers(time.Now()))
	a.mu.Unlock()
	if hungry {
		a.Wake()
	}
}

// overflow tells that the database holds due entries of a type beyond those the queue knows.
func (a *claimSchedule) overflow(businessType string) {
	a.mu.Lock()
	earlier := false
	if typeSchedule := a.byType[businessType]; typeSchedule != nil {
		// Before the scanner is woken: the claim that begins then asks the database as well as the queue.
		typeSchedule.backlog = true
		typeSchedule.overflows++
		earlier = typeSchedule.notify(time.Now()) // what is left of a backlog has waited
	}
	a.mu.Unlock()
	if earlier {
		a.Wake()
	}
}

// canClaim reports whether a claim of a type could begin now. Where none can, the news of a due entry is for others: kept
// here, it would wait for a claim to end, a slot, or the end of the pause after a refusal.
func (a *claimSchedule) canClaim(t *Type) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	typeSchedule := a.byType[t.Name]
	return typeSchedule != nil && typeSchedule.claiming < claimsInFlight && !time.Now().Before(typeSchedule.closed) && t.slots.Free() > 0
}

// heard returns the names of the types in order, and how much was heard of each.
func (a *claimSchedule) heard() (names []string, heard []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	heard = make([]int, len(a.names))
	for i, name := range a.names {
		heard[i] = a.byType[name].notified
	}
	return a.names, heard
}

// postpone lets a type wait for what the queue has said, unless something was heard of it since the queue was asked: an
// older answer would hide an entry that was enqueued meanwhile, until the next look.
//
// Nor does it where the queue's word is not the last one: a claim under way says at its end when the next is worth it, a
// backlog is what the queue does not know, and after a refusal due is the end of a pause. And never past the next look at
// the queue, which says it again.
func (a *claimSchedule) postpone(businessType string, notified int, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	typeSchedule := a.byType[businessType]
	// What is due waits since an unknown while: put off by each look it would wait for ever.
	if typeSchedule.wait > 0 && wait <= 0 {
		return
	}
	due := time.Now().Add(min(wait, 2*peekInterval) + typeSchedule.wait)
	if typeSchedule.claiming == 0 && typeSchedule.notified == notified && !typeSchedule.backlog && typeSchedule.failures == 0 && due.After(typeSchedule.due) {
		typeSchedule.due = due
	}
}

// began notes that the transaction of a claim begins.
func (a *claimSchedule) began(t *Type, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byType[t.Name].pace.Begin(now)
}

// ended notes that it is over.
func (a *claimSchedule) ended(t *Type, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byType[t.Name].pace.End(took)
}

// claimEnded takes note of how a claim went.
func (a *claimSchedule) claimEnded(t *Type, got claimResult, began claimBegan) {
	a.mu.Lock()
	a.byType[t.Name].ended(got, began)
	a.mu.Unlock()
	a.Wake() // there is room for another claim, and slots that this one has not used
}

// hasBacklog reports whether the database holds due entries of a type that the queue does not.
func (a *claimSchedule) hasBacklog(t *Type) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byType[t.Name].backlog
}

func (a *claimSchedule) readAhead(t *Type) *readAhead {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byType[t.Name].ahead
}
