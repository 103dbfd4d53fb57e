// Package slots implements HandlerConfig.Concurrency: it bounds how many calls of a type's handler run at once in this
// process. Some slots are kept for entries that this process records: an open transaction can reserve slots, and a
// fifth of them stays free while a backlog is worked off.
package slots

import (
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
)

// Slots count the calls of one type's handler. They implement engine.Slots.
type Slots struct {
	size               int
	reservationTimeout time.Duration // after which the reservation of an open transaction lapses
	otherLimits        func() int    // calls that other features allow to begin now

	mu sync.Mutex // guards the fields below
	// running counts the slots of running handlers, and the slots that Take has given to a claim whose entries are not
	// known yet. Overdraw may raise running above size.
	running      int
	reserved     int
	reservations []*reservation // the oldest first
	lastRecorded time.Time      // when an entry that is due at once was last recorded
}

// Attach bounds the calls of a type by its Concurrency.
func Attach(t *engine.Type) {
	t.AttachSlots(&Slots{size: t.Concurrency, reservationTimeout: t.Lease / 3, otherLimits: t.CallsAllowed})
}

// reservation is a number of slots that are set aside. It lapses after reservationTimeout, because a transaction that
// stays open must not hold up the type.
type reservation struct {
	s       *Slots
	n       int
	expires time.Time
	isSpent bool // used, given back, or lapsed; guarded by s.mu
}

// recordedShare is a duration that begins when this process has recorded an entry that is due at once. During this
// time, a fifth of the slots stays free for further recorded entries.
const recordedShare = 10 * time.Second

// Reserve reserves up to n slots for entries that a transaction is about to insert with a lease. It returns nil if it
// can reserve no slot. All reservations together hold at most half of the slots, because a transaction may stay open
// for long. Other entries of the type can then still run. See promise G17.
func (s *Slots) Reserve(n int) engine.Reservation {
	if r := s.reserve(n); r != nil {
		return r
	}
	return nil
}

func (s *Slots) reserve(n int) *reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.dropExpiredLocked(now)
	// The caller is about to record entries. From now until recordedShare has passed, claims of due entries leave some
	// slots free for recorded entries.
	s.lastRecorded = now
	if s.otherLimits() < engine.Unlimited {
		return nil
	}
	// max(1, …) lets a type with one slot reserve that slot.
	n = min(n, max(1, s.size/2)-s.reserved, s.size-s.running-s.reserved)
	if n <= 0 {
		return nil
	}
	r := &reservation{s: s, n: n, expires: now.Add(s.reservationTimeout)}
	s.reserved += n
	s.reservations = append(s.reservations, r)
	return r
}

// Recorded notes that this process has recorded an entry now. Call it for an entry that is due at once and has no
// reserved slot.
func (s *Slots) Recorded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastRecorded = time.Now()
}

func (s *Slots) dropExpiredLocked(now time.Time) {
	for len(s.reservations) > 0 && (s.reservations[0].isSpent || !now.Before(s.reservations[0].expires)) {
		s.spendLocked(s.reservations[0])
		s.reservations = s.reservations[1:]
	}
}

func (s *Slots) spendLocked(r *reservation) bool {
	if r.isSpent {
		return false
	}
	r.isSpent = true
	s.reserved -= r.n
	return true
}

// Use occupies the given number of the reserved slots and frees the others. It returns false if the reservation was
// used before or has lapsed.
func (r *reservation) Use(used int) bool {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.dropExpiredLocked(time.Now())
	if !r.s.spendLocked(r) {
		return false
	}
	r.s.running += used
	return true
}

// Take occupies up to n slots for a claim of due entries, and returns how many it occupied.
func (s *Slots) Take(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, s.freeSlotsLocked())
	if n <= 0 {
		return 0
	}
	s.running += n
	return n
}

// TakeRecorded occupies a slot for an entry that this process has just recorded. It may use the slots that are kept
// free for such entries.
func (s *Slots) TakeRecorded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropExpiredLocked(time.Now())
	if s.running+s.reserved >= s.size || s.otherLimits() < engine.Unlimited {
		return false
	}
	s.running++
	return true
}

// freeSlotsLocked may return a negative number, after Overdraw or if more slots are kept for new entries than are free.
func (s *Slots) freeSlotsLocked() int {
	now := time.Now()
	s.dropExpiredLocked(now)
	if limit := s.otherLimits(); limit < engine.Unlimited {
		// Another feature limits the calls now, so TakeRecorded takes no slot. Slots that are kept free for new entries
		// would stay unused, so keep none free. New entries then wait behind the entries that have waited longer.
		return min(limit, s.size-s.running-s.reserved)
	}
	// A backlog would take every free slot, and new entries would wait behind all of it.
	spare := 0
	if s.size > 1 && now.Sub(s.lastRecorded) < recordedShare {
		spare = max(1, s.size/5)
	}
	return s.size - s.running - s.reserved - max(0, spare-s.reserved)
}

// Available returns the largest number of slots that Take can occupy now.
func (s *Slots) Available() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.freeSlotsLocked())
}

// Overdraw implements engine.Slots. It occupies n slots even if none is free, because the entries for which it is
// called must not wait for a slot.
func (s *Slots) Overdraw(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running += n
}

// Release frees n slots.
func (s *Slots) Release(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running -= n
}
