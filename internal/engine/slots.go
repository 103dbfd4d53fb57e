package engine

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// slots is a type's concurrency in this process. Every call of a handler occupies one, from before its entries are
// claimed until it has returned; those of a batch that came to no verdict run alone, all in its one.
type slots struct {
	size        int
	reservation time.Duration // how long a reservation of an open transaction holds
	paused      atomic.Bool   // people have paused the type: nobody asks for slots

	breaker *breaker // while it is shut, slots count as taken

	mu        sync.Mutex // guards the fields below
	running   int        // calls that claims under way may need, and handlers; more than size where some were overdrawn
	reserved  int
	open      []*reservation // in the order they were given, so that the first lapses first
	lastFresh time.Time      // when an entry last was to be inserted with a lease
}

// reservation is slots an open transaction has reserved for entries inserted with a lease. It lapses: a transaction that
// stays open must not hold up the type.
type reservation struct {
	n       int
	expires time.Time
	spent   bool // used, given back, or lapsed
}

// freshShare is how long after an entry that was recorded to run at once a part of the slots is kept for the next ones.
const freshShare = 10 * time.Second

// reserve sets aside up to n slots for entries about to be inserted with a lease. Open transactions hold at most half
// of them: they may stay open for long, and what is due has to run (G14, G17).
func (s *slots) reserve(n int) *reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.lapseLocked(now)
	s.lastFresh = now // also where none is free: what a backlog leaves free next is for its successors
	if s.breaker.shut() {
		return nil
	}
	// A type of one slot has it to reserve as well.
	n = min(n, max(1, s.size/2)-s.reserved, s.size-s.running-s.reserved)
	if n <= 0 {
		return nil
	}
	c := &reservation{n: n, expires: now.Add(s.reservation)}
	s.reserved += n
	s.open = append(s.open, c)
	return c
}

// fresh tells of entries that are about to be recorded and reserve nothing.
func (s *slots) fresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastFresh = time.Now()
}

// lapseLocked gives back what has been reserved for too long. Nobody sets a timer for it: who counts slots asks first.
func (s *slots) lapseLocked(now time.Time) {
	for len(s.open) > 0 && (s.open[0].spent || !now.Before(s.open[0].expires)) {
		s.spendLocked(s.open[0])
		s.open = s.open[1:]
	}
}

// spendLocked gives a reservation back once: its transaction may end after it has lapsed.
func (s *slots) spendLocked(c *reservation) bool {
	if c.spent {
		return false
	}
	c.spent = true
	s.reserved -= c.n
	return true
}

// use turns a reservation into running slots, keep of them; the rest is free again. It returns false when the
// reservation has lapsed.
func (s *slots) use(c *reservation, keep int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lapseLocked(time.Now())
	// Others may have its slots by now.
	if !s.spendLocked(c) {
		return false
	}
	s.running += keep
	return true
}

// take occupies up to n slots for entries found due. During a backlog a fifth stays free for new entries, as
// long as such arrive.
func (s *slots) take(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, s.freeLocked())
	if n <= 0 {
		return 0
	}
	s.running += n
	return n
}

// takeFresh occupies a slot for an entry that has just been recorded, also one that is kept for such.
func (s *slots) takeFresh() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lapseLocked(time.Now())
	if s.running+s.reserved >= s.size {
		return false
	}
	if s.breaker.shut() {
		return false
	}
	s.running++
	return true
}

// freeLocked is how many slots there are for what is found due; below zero where they are overdrawn, or kept.
func (s *slots) freeLocked() int {
	now := time.Now()
	s.lapseLocked(now)
	if room := s.breaker.room(); room < math.MaxInt {
		return min(room, s.size-s.running-s.reserved) // for what has waited longest, and no new one
	}
	// A backlog takes every slot that is free. New entries would wait behind all of it.
	keep := 0
	if s.size > 1 && now.Sub(s.lastFresh) < freshShare {
		keep = max(1, s.size/5)
	}
	return s.size - s.running - s.reserved - max(0, keep-s.reserved) // what is reserved is kept for new ones already
}

// free is how many slots take would give.
func (s *slots) free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.freeLocked())
}

// overdraw occupies n slots whether there are any or not: for entries that run nothing. Whoever deals with a claimed entry
// gives its slot back, also one whose stuck handler has the last one.
func (s *slots) overdraw(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running += n
}

// release frees n slots.
func (s *slots) release(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running -= n
}
