package engine

import (
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/internal/readahead"
	"github.com/compensator-go/compensator/processlog"
)

// peekInterval is the longest time that the scanner sleeps and that a source is not asked. A lost wake-up delays an
// entry by no more than this. See peekEvery.
const peekInterval = 5 * time.Second

// claimSchedule records when a claim of each type is next worthwhile. Other code notifies it of due entries and free
// slots. The scanner reads it and starts the claims.
type claimSchedule struct {
	types *types
	wake  chan struct{} // wakes the scanner; holds one signal, so that a notification during its work is not lost

	mu     sync.Mutex // guards the fields below; lock it before the mutex of a type's slots
	names  []string   // sorted names of the types when Run began
	byType map[string]*typeSchedule
	seen   chan struct{} // closed once the scanner of this Run has looked at every type
}

func newClaimSchedule(t *types) *claimSchedule {
	return &claimSchedule{types: t, wake: make(chan struct{}, 1), byType: make(map[string]*typeSchedule)}
}

// prepare resets the schedule when Run begins. A type may be claimed at once, unless its entries wait for others. Then the
// scanner first looks how many entries are due.
func (a *claimSchedule) prepare() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names = a.types.names()
	a.seen = make(chan struct{})
	for _, name := range a.names {
		t := a.types.named(name)
		// Set due one wait from now, as if an entry had just come due. An immediate claim would cut the wait for others short
		// each time a process starts. The scanner then looks how long the first entry has waited.
		a.byType[name] = &typeSchedule{due: time.Now().Add(t.Wait()), pace: groupcommit.Pace{Most: claimPace}, ahead: readahead.New(), wait: t.Wait(), grouping: t.grouping}
	}
}

// Wake wakes the scanner if it sleeps.
func (a *claimSchedule) Wake() {
	select {
	case a.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// expect schedules a claim of a type after the duration in. It adds the time that entries of the type wait for others.
func (a *claimSchedule) expect(businessType string, in time.Duration) {
	now := time.Now()
	a.mu.Lock()
	typeSchedule := a.byType[businessType]
	news := false
	if typeSchedule != nil {
		filled := in <= 0 && typeSchedule.wait > 0 && typeSchedule.grouping.Due()
		in = min(in, processlog.Never-typeSchedule.wait) // Never is the longest duration, so the sum would overflow
		news = typeSchedule.notify(now.Add(max(0, in+typeSchedule.wait))) || filled
	}
	a.mu.Unlock()
	if news {
		a.Wake()
	}
}

// notify records that another process has reported a due entry of this type.
//
// The result tells the caller to ask the source for the due time. This happens when entries of the type wait for others
// and none was known to wait.
func (a *claimSchedule) notify(businessType string) (ask bool) {
	var in time.Duration
	a.mu.Lock()
	// Only one process gets the entry, so the claims of the others find nothing. The more often that happens to this
	// process, the longer it holds back.
	typeSchedule := a.byType[businessType]
	if typeSchedule != nil {
		in = typeSchedule.holdBack()
	}
	waits := typeSchedule != nil && typeSchedule.wait > 0
	if waits {
		typeSchedule.notified++ // earlier answers of the queue do not include this entry
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

// free releases slots of a type, for which due entries may be waiting.
func (a *claimSchedule) free(t *Type, n int) {
	t.slots.Release(n)
	a.freed(t)
}

// cancel releases the slots that a reservation holds.
func (a *claimSchedule) cancel(businessType string, reservation Reservation) {
	t := a.types.named(businessType)
	// Use counts nothing twice, so it is safe after the reservation has lapsed and its slots were released.
	reservation.Use(0)
	a.freed(t)
}

// looked records the result of a look at entries that wait for others, and wakes the scanner. ripeIn is how much longer they may
// wait, or Never if none is due.
func (a *claimSchedule) looked(t *Type, ripeIn time.Duration) {
	a.mu.Lock()
	typeSchedule := a.byType[t.Name]
	typeSchedule.looking = false
	if ripeIn < processlog.Never {
		typeSchedule.notified++ // an earlier answer of the queue may not include these entries
		typeSchedule.sooner(time.Now().Add(ripeIn))
	}
	a.mu.Unlock()
	a.Wake()
}

// freed wakes the scanner after a slot of a type became free, if more entries of the type may be due.
func (a *claimSchedule) freed(t *Type) {
	a.mu.Lock()
	typeSchedule := a.byType[t.Name]
	// Do not wake the scanner for a returned handler when nothing more is due, because it would look at every type.
	hungry := typeSchedule != nil && (typeSchedule.wants(t, time.Now()) || typeSchedule.lingers(time.Now()))
	a.mu.Unlock()
	if hungry {
		a.Wake()
	}
}

// overflow records that the database holds due entries of a type that the queue does not hold.
func (a *claimSchedule) overflow(businessType string) {
	a.mu.Lock()
	earlier := false
	if typeSchedule := a.byType[businessType]; typeSchedule != nil {
		// Set backlog before the scanner wakes, so that its next claim also asks the database.
		typeSchedule.backlog = true
		typeSchedule.overflows++
		earlier = typeSchedule.notify(time.Now()) // entries of a backlog have already waited, so do not let them wait for others
	}
	a.mu.Unlock()
	if earlier {
		a.Wake()
	}
}

// canClaim reports whether a claim of a type could begin now. If not, the notification of a due entry should go to
// another process. Here the entry would wait for a running claim, for a slot, or for the pause after a refusal.
func (a *claimSchedule) canClaim(t *Type) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	typeSchedule := a.byType[t.Name]
	return typeSchedule != nil && typeSchedule.claiming < claimsInFlight && !time.Now().Before(typeSchedule.closed) && t.slots.Free() > 0
}

// heard returns the type names in sorted order. For each type it also returns the counter notified.
func (a *claimSchedule) heard() (names []string, heard []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	heard = make([]int, len(a.names))
	for i, name := range a.names {
		heard[i] = a.byType[name].notified
	}
	return a.names, heard
}

// postpone delays the next claim of a type to the time that the queue has answered. It does nothing if the notified
// counter has changed since the queue was asked. Such an old answer would hide an entry enqueued meanwhile until the
// next look.
//
// It also does nothing in these cases, where the queue's answer is not enough:
//
//   - A claim is running. Its result will say when the next claim is worthwhile.
//   - The database holds a backlog that the queue does not know.
//   - The database has refused a claim, and due is the end of the pause.
//
// It never postpones beyond twice peekInterval plus the wait for others, because the queue answers again before that.
func (a *claimSchedule) postpone(businessType string, notified int, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	typeSchedule := a.byType[businessType]
	// These entries are due, but it is unknown for how long. Each look would postpone their batch again, without end.
	if typeSchedule.wait > 0 && wait <= 0 {
		return
	}
	due := time.Now().Add(min(wait, 2*peekInterval) + typeSchedule.wait)
	if typeSchedule.claiming == 0 && typeSchedule.notified == notified && !typeSchedule.backlog && typeSchedule.failures == 0 && due.After(typeSchedule.due) {
		typeSchedule.due = due
	}
}

// began records that the transaction of a claim begins.
func (a *claimSchedule) began(t *Type, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byType[t.Name].pace.Begin(now)
}

// ended records that the transaction of a claim has ended, and how long it took.
func (a *claimSchedule) ended(t *Type, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byType[t.Name].pace.End(took)
}

// ask returns how many entries of a type to ask the source for. See typeSchedule.ask.
func (a *claimSchedule) ask(t *Type, n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byType[t.Name].ask(n)
}

// noteBlocked records how many entries the source has offered, and how many of them were not blocked.
func (a *claimSchedule) noteBlocked(t *Type, offered, runnable int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byType[t.Name].offered, a.byType[t.Name].runnable = offered, runnable
}

// claimEnded records the result of a claim and wakes the scanner.
func (a *claimSchedule) claimEnded(t *Type, got claimResult, began claimBegan) {
	a.mu.Lock()
	a.byType[t.Name].ended(got, began)
	a.mu.Unlock()
	a.Wake() // another claim may begin now, and this one may have left slots unused
}

// hasBacklog reports whether the database holds due entries of a type that the queue does not hold.
func (a *claimSchedule) hasBacklog(t *Type) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byType[t.Name].backlog
}

func (a *claimSchedule) readAhead(t *Type) *readahead.List {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byType[t.Name].ahead
}

// scanned notes that the scanner has looked at every type.
func (a *claimSchedule) scanned() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.seen)
}

// Scanned returns a channel that is closed once the scanner of this Run has looked at every type. A source waits for it, because
// its answer could postpone a type before the scanner has looked at it.
func (e *Engine) Scanned() <-chan struct{} {
	e.claimSchedule.mu.Lock()
	defer e.claimSchedule.mu.Unlock()
	return e.claimSchedule.seen
}
