// Package quarantine limits how many suspects run at once. A suspect is an entry that may have killed a process.
//
// When a process dies, every entry that it runs loses a lease, and becomes a suspect. Most of these entries did not
// kill the process. So only a few suspects run at the same time. If one of them kills a process again, only these few
// entries lose a second lease. A suspect that has lost two leases runs alone.
package quarantine

import (
	"math"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

const loneLosses = 2

// lonePause is how long suspects with one lost lease may not start after a suspect with two lost leases was skipped. A
// suspect is an entry that may have killed a process. A suspect with two lost leases is skipped while other suspects
// run. The pause is long enough for the skipped suspect to be offered twice.
const lonePause = 2 * engine.SkippedRetry

// Quarantine limits how many suspects run at once in one process. A suspect is an entry that has lost a lease, so it
// may have killed a process. Each suspect takes one of a limited number of places before it starts. The suspect keeps
// its place until its outcome is durable. While a suspect with two lost leases runs, no other suspect of any type runs.
type Quarantine struct {
	e *engine.Engine

	mu              sync.Mutex      // guards the fields below
	places          map[suspect]int // number of lost leases of each entry that runs as a suspect
	byType          map[*engine.Type]*typePlaces
	shared          int       // number of entries with one lost lease that run as suspects
	sharedSince     time.Time // when the field shared last rose from 0 to 1
	loneSuspectRuns bool      // an entry with two lost leases runs, so no other entry that has lost a lease may start
	loneSince       time.Time // when the entry with two lost leases was accepted
	// Until the time noEntryUntil, no entry with one lost lease starts. Then a skipped entry with two lost leases can
	// start.
	noEntryUntil time.Time
}

type suspect struct {
	id    processlog.ID
	epoch uint32
}

// New makes the quarantine of an engine.
func New(e *engine.Engine) *Quarantine {
	return &Quarantine{e: e, places: make(map[suspect]int), byType: make(map[*engine.Type]*typePlaces)}
}

// Attach makes the quarantine decide which suspects of a type may start. A suspect is an entry that has lost a lease,
// so it may have killed the process that ran it.
func (q *Quarantine) Attach(t *engine.Type) {
	t.AttachAdmission(func(a *engine.Admission) {
		a.Accept = func(row *processlog.Row, lostLeases int) bool {
			return q.accept(t, suspect{row.ID, row.Epoch}, lostLeases)
		}
		a.SuspectDone = func(row *processlog.Row, reason engine.SuspectEnd) { q.release(t, suspect{row.ID, row.Epoch}, reason) }
	})
}

func (q *Quarantine) accept(t *engine.Type, s suspect, lostLeases int) bool {
	if lostLeases < engine.SuspectAfter {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, found := q.places[s]; found || !q.enterLocked(t, lostLeases) {
		return false
	}
	q.places[s] = lostLeases
	return true
}

// Hold returns the reason why an entry that has lost the given number of leases may not start now. The result is nil if
// the entry may start. An entry that has lost no lease may always start.
func (q *Quarantine) Hold(t *engine.Type, lostLeases int) *processlog.ClaimHold {
	if lostLeases < engine.SuspectAfter {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	running, since := q.shared, q.sharedSince
	f := q.placesOf(t)
	switch {
	case q.loneSuspectRuns:
		running, since = 1, q.loneSince
	case lostLeases >= loneLosses && q.shared > 0:
	case lostLeases >= loneLosses:
		return nil
	case time.Now().Before(q.noEntryUntil):
		since = q.noEntryUntil.Add(-lonePause)
	case f.isFull():
		running, since = f.taken, f.fullSince
	default:
		return nil
	}
	return &processlog.ClaimHold{Reason: processlog.HeldBySuspects, N: running, LostLeases: min(lostLeases, loneLosses), For: time.Since(since)}
}

func (q *Quarantine) release(t *engine.Type, s suspect, reason engine.SuspectEnd) {
	q.mu.Lock()
	lostLeases, found := q.places[s]
	hasRoom := false
	if found {
		delete(q.places, s)
		hasRoom = q.leaveLocked(t, lostLeases, reason == engine.OutcomeDecided)
	}
	q.mu.Unlock()
	if hasRoom && reason != engine.NotClaimed {
		q.e.ExpectBacklog(t.Name)
	}
}

func (q *Quarantine) enterLocked(t *engine.Type, lostLeases int) bool {
	switch {
	case q.loneSuspectRuns:
		return false
	case lostLeases >= loneLosses && q.shared > 0:
		// An entry with two lost leases runs only while no other entry that has lost a lease runs. Entries with one
		// lost lease could follow each other without a gap, and the entry with two lost leases would never start. So no
		// entry with one lost lease starts for the next lonePause.
		q.noEntryUntil = time.Now().Add(lonePause)
		return false
	case lostLeases >= loneLosses:
		q.loneSuspectRuns, q.loneSince, q.noEntryUntil = true, time.Now(), time.Time{}
		return true
	case time.Now().Before(q.noEntryUntil) || !q.placesOf(t).takePlace(t):
		return false
	}
	if q.shared == 0 {
		q.sharedSince = time.Now()
	}
	q.shared++
	return true
}

func (q *Quarantine) leaveLocked(t *engine.Type, lostLeases int, ended bool) (hasRoom bool) {
	if lostLeases >= loneLosses {
		q.loneSuspectRuns = false
		return true
	}
	q.shared--
	return q.placesOf(t).leave(t, ended)
}

func (q *Quarantine) placesOf(t *engine.Type) *typePlaces {
	if q.byType[t] == nil {
		q.byType[t] = new(typePlaces)
	}
	return q.byType[t]
}

// typePlaces counts the places of one type. An entry with one lost lease is a suspect, because it may have killed a
// process. Each suspect takes a place while it runs. At first the number of places is the square root of the number of
// entries that can run at once. A type without a batch handler keeps this number. A type with a batch handler gets more
// places: when n suspects have ended and there are n places, the number of places becomes 3·n. The maximum is the
// number of entries that can run at once.
type typePlaces struct {
	taken int // number of places that are in use
	limit int // number of places
	// skipping is true from the moment at which all places are taken, until half of them are free. While skipping is
	// true, no suspect starts. Otherwise each freed place would start a call with a single entry. Only types with a
	// batch handler use skipping.
	skipping   bool
	fullSince  time.Time // when the number of places in use last rose to the limit
	endedCount int       // number of entries that have ended since the number of places last rose
	releasedAt time.Time // when an entry last gave its place back
}

const (
	placesGrowth = 3

	placesReset = 10 * time.Second
)

func placeLimits(t *engine.Type) (first, maximum int) {
	maximum = t.Concurrency * t.Seats()
	first = int(math.Ceil(math.Sqrt(float64(maximum))))
	if !t.Grouped() {
		maximum = first
	}
	return first, maximum
}

func (f *typePlaces) takePlace(t *engine.Type) bool {
	first, _ := placeLimits(t)
	if f.limit == 0 || f.taken == 0 && time.Since(f.releasedAt) > placesReset {
		f.limit, f.endedCount, f.skipping = first, 0, false
	}
	if f.isFull() {
		return false
	}
	f.taken++
	if f.taken == f.limit {
		f.skipping, f.fullSince = t.Grouped(), time.Now()
	}
	return true
}

func (f *typePlaces) isFull() bool { return f.skipping || f.limit > 0 && f.taken >= f.limit }

func (f *typePlaces) leave(t *engine.Type, ended bool) (hasRoom bool) {
	f.taken--
	f.releasedAt = time.Now()
	if !t.Grouped() {
		return true
	}
	hasRoom = f.taken == 0 || f.skipping && f.taken <= f.limit/2
	if f.taken <= f.limit/2 {
		f.skipping = false
	}
	if ended {
		f.endedCount++
	}
	if f.endedCount >= f.limit {
		_, maximum := placeLimits(t)
		f.limit, f.endedCount = min(f.limit*placesGrowth, maximum), 0
	}
	return hasRoom
}
