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

// quarantine is the places of this process for entries that have lost leases, and so may have killed a process. A place
// is held until the outcome is durable. Entries of one lost lease run among few, as many as the root of their type's
// concurrency: if one of them kills the process, few innocents get a second lost one. Those of two run alone, of all types
// and beside none of the first kind.
type quarantine struct {
	mu    sync.Mutex // guards the fields below
	few   map[*Type]int
	total int       // of few
	alone bool      // one runs
	turn  time.Time // until then the few let nobody in: one that is to run alone has been refused
}

// fewOf is how many suspects of a type run at once.
func fewOf(t *Type) int { return int(math.Ceil(math.Sqrt(float64(t.Concurrency)))) }

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
	case q.few[t] >= fewOf(t) || time.Now().Before(q.turn):
		return false
	}
	setIn(&q.few, t, q.few[t]+1)
	q.total++
	return true
}

// leave gives a place back.
func (q *quarantine) leave(t *Type, lost int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case lost < suspectAfter:
	case lost >= aloneAfter:
		q.alone = false
	default:
		q.few[t]--
		q.total--
	}
}
