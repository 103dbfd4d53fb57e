package engine

import (
	"math"
	"sync"
	"time"
)

const (
	// suspectAfter is how many leases in a row an entry may lose before it runs among few.
	suspectAfter = 1

	// aloneAfter is how many before it runs alone.
	aloneAfter = 2

	// aloneWait is how long those that run among few stay out for one that is to run alone: until it has been offered again, and
	// again where that came too early.
	aloneWait = 2 * refusedRetry
)

// quarantine holds the places of this process for suspects. A suspect is an entry that has lost leases, and so may have killed a
// process. It holds its place until its outcome is durable. Suspects of one lost lease run among few: if one of them kills the
// process, few innocents lose a second lease. Suspects of two run alone, of all types and beside none of the first kind.
type quarantine struct {
	mu    sync.Mutex // guards the fields below
	few   map[*Type]*few
	total int       // places held by suspects of one lost lease
	alone bool      // one runs
	turn  time.Time // until then the few let nobody in: one that is to run alone has been refused
}

// few is the places of one type for suspects of one lost lease. A plain type has as many as the root of its Concurrency. A batch
// type counts entries, not calls: it begins with the root of what all its calls may hold. Each time as many as are allowed have ended,
// three times as many are allowed. Where a healthy process was killed, all that it held is worked off in a few rounds so.
type few struct {
	held    int
	allowed int
	full    bool      // it was, and half of it is not free yet: what is claimed singly would run in calls of one entry
	proven  int       // have ended since allowed was raised
	left    time.Time // when a place was last given back
}

const (
	// fewGrowth is how many times as many suspects of a batch type may run next.
	fewGrowth = 3

	// fewForget is how long a batch type has no suspects before the next ones begin with the least again: they are of another crash.
	fewForget = 10 * time.Second
)

// fewOf is how many suspects of a type run at once at first, and at most.
func fewOf(t *Type) (first, most int) {
	most = t.Concurrency * t.seats()
	first = int(math.Ceil(math.Sqrt(float64(most))))
	if t.RunBatch == nil {
		most = first
	}
	return first, most
}

// take takes a place, if one is free.
func (f *few) take(t *Type) bool {
	first, _ := fewOf(t)
	if f.allowed == 0 || f.held == 0 && time.Since(f.left) > fewForget {
		f.allowed, f.proven, f.full = first, 0, false
	}
	if f.full || f.held >= f.allowed {
		return false
	}
	f.held++
	f.full = t.RunBatch != nil && f.held == f.allowed
	return true
}

// leave gives a place back, and reports whether others may come. ended: with an outcome.
func (f *few) leave(t *Type, ended bool) (room bool) {
	f.held--
	f.left = time.Now()
	if t.RunBatch == nil {
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

// enter takes a place for an entry that has lost so many leases.
func (q *quarantine) enter(t *Type, lost int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case lost < suspectAfter:
		return true
	case q.alone:
		return false
	case lost >= aloneAfter && q.total > 0:
		// Those of the first kind would follow each other, and never be all gone.
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

func (q *quarantine) fewOf(t *Type) *few {
	if q.few[t] == nil {
		setIn(&q.few, t, new(few))
	}
	return q.few[t]
}

// leave gives a place back, and reports whether others may come. ended: the entry has run and has an outcome.
func (q *quarantine) leave(t *Type, lost int, ended bool) (room bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case lost < suspectAfter:
		return false
	case lost >= aloneAfter:
		q.alone = false
		return true
	}
	q.total--
	return q.fewOf(t).leave(t, ended)
}
