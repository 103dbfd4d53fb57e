// Package quarantine limits how many suspects run at once. A suspect is an entry that may have killed a process.
//
// An entry whose lease has ended without an outcome may have killed the process that ran it. Only a few such suspects
// run at the same time, so that a crash costs only a few innocent entries a second lease. A suspect that has lost two
// leases runs alone.
package quarantine

import (
	"math"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

// A suspect that has lost aloneAfter leases in a row runs alone.
const aloneAfter = 2

// aloneWait is a pause for suspects with one lost lease. It begins when a suspect with two lost leases was refused
// because others ran. The pause is long enough for the refused suspect to be offered twice.
const aloneWait = 2 * engine.RefusedRetry

// Quarantine limits the suspects of one process. A suspect takes a place, and keeps it until its outcome is durable.
// For suspects with one lost lease, each type has a few places. While a suspect with two lost leases runs, no other
// suspect of any type runs.
type Quarantine struct {
	e *engine.Engine

	mu     sync.Mutex      // guards the fields below
	places map[suspect]int // number of lost leases of each suspect that holds a place
	few    map[*engine.Type]*few
	total  int       // places held by suspects with one lost lease
	alone  bool      // whether a suspect with two lost leases runs
	turn   time.Time // until then no suspect with one lost lease may start, because a suspect with two was refused
}

// suspect identifies an entry within one epoch.
type suspect struct {
	id    processlog.ID
	epoch uint32
}

// New makes the quarantine of an engine.
func New(e *engine.Engine) *Quarantine {
	return &Quarantine{e: e, places: make(map[suspect]int), few: make(map[*engine.Type]*few)}
}

// Attach makes the quarantine decide about the suspects of a type.
func (q *Quarantine) Attach(t *engine.Type) {
	t.Admit(func(a *engine.Admission) {
		a.Accept = func(row *processlog.Row, lost int) bool { return q.accept(t, suspect{row.ID, row.Epoch}, lost) }
		a.Left = func(row *processlog.Row, why engine.Leaving) { q.left(t, suspect{row.ID, row.Epoch}, why) }
	})
}

// accept takes a place for an entry, if a place is free. The parameter lost is the number of leases that the entry has
// lost. An entry that has lost none needs no place.
func (q *Quarantine) accept(t *engine.Type, s suspect, lost int) bool {
	if lost < engine.SuspectAfter {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, held := q.places[s]; held || !q.enterLocked(t, lost) {
		return false
	}
	q.places[s] = lost
	return true
}

// The method left gives the place of a suspect back.
func (q *Quarantine) left(t *engine.Type, s suspect, why engine.Leaving) {
	q.mu.Lock()
	lost, held := q.places[s]
	room := false
	if held {
		delete(q.places, s)
		room = q.leaveLocked(t, lost, why == engine.Ended)
	}
	q.mu.Unlock()
	if room && why != engine.NotClaimed {
		q.e.Overflow(t.Name) // Suspects were refused meanwhile.
	}
}

// enterLocked takes a place for a suspect that has lost the given number of leases.
func (q *Quarantine) enterLocked(t *engine.Type, lost int) bool {
	switch {
	case q.alone:
		return false
	case lost >= aloneAfter && q.total > 0:
		// Without this wait, suspects with one lost lease could follow each other without a gap, and a suspect with two
		// would never start.
		q.turn = time.Now().Add(aloneWait)
		return false
	case lost >= aloneAfter:
		q.alone, q.turn = true, time.Time{}
		return true
	case time.Now().Before(q.turn) || !q.fewOf(t).take(t):
		return false
	}
	q.total++
	return true
}

// leaveLocked gives a place back, and reports whether other suspects may start. The parameter ended says whether the
// entry has an outcome.
func (q *Quarantine) leaveLocked(t *engine.Type, lost int, ended bool) (room bool) {
	if lost >= aloneAfter {
		q.alone = false
		return true
	}
	q.total--
	return q.fewOf(t).leave(t, ended)
}

func (q *Quarantine) fewOf(t *engine.Type) *few {
	if q.few[t] == nil {
		q.few[t] = new(few)
	}
	return q.few[t]
}

// The type few holds the places of one type for suspects with one lost lease. A type without a batch handler has as
// many places as the square root of its Concurrency.
//
// For a type with a batch handler, a place is for one entry and not for one call. The type begins with the square root
// of the number of entries that all its calls can hold. Once that many suspects have ended, the number triples. So the
// entries of a healthy process that was killed are worked off in a few rounds.
type few struct {
	held    int
	allowed int
	// full becomes true when all places are taken, and false when half of them are free again. Without it, each freed
	// place would start a call with a single entry.
	full   bool
	proven int       // number of suspects that have ended since the field allowed was raised
	left   time.Time // when a place was last given back
}

const (
	// fewGrowth is the factor by which the number of places of a batch type grows, once that number of suspects has
	// ended.
	fewGrowth = 3

	// fewForget is the time without suspects after which a batch type has only its first number of places again. Suspects
	// that come after this time probably come from another crash.
	fewForget = 10 * time.Second
)

// fewOf returns the first and the largest number of places for suspects of a type.
func fewOf(t *engine.Type) (first, most int) {
	most = t.Concurrency * t.Seats()
	first = int(math.Ceil(math.Sqrt(float64(most))))
	if !t.Grouped() {
		most = first
	}
	return first, most
}

// take occupies a place, if one is free.
func (f *few) take(t *engine.Type) bool {
	first, _ := fewOf(t)
	if f.allowed == 0 || f.held == 0 && time.Since(f.left) > fewForget {
		f.allowed, f.proven, f.full = first, 0, false
	}
	if f.full || f.held >= f.allowed {
		return false
	}
	f.held++
	f.full = t.Grouped() && f.held == f.allowed
	return true
}

// leave gives a place back, and reports whether other suspects may start. The parameter ended says whether the entry
// has an outcome.
func (f *few) leave(t *engine.Type, ended bool) (room bool) {
	f.held--
	f.left = time.Now()
	if !t.Grouped() {
		return true
	}
	room = f.held == 0 || f.full && f.held <= f.allowed/2
	if f.held <= f.allowed/2 {
		f.full = false
	}
	if ended {
		f.proven++
	}
	if f.proven >= f.allowed {
		_, most := fewOf(t)
		f.allowed, f.proven = min(f.allowed*fewGrowth, most), 0
	}
	return room
}
