package timingwheel

import (
	"cmp"
	"math/bits"
	"slices"
)

// minWheelSlots is the least number of slots of a wheel. The number of slots is always a power of two, so that a bit
// mask finds the slot of an entry. It is also a multiple of 64, because each element of the field occupied holds the
// bits of 64 slots.
const minWheelSlots = 64

// wheelSlots is a hashed timing wheel. In a wheel of n slots, an entry that is due at time t, in ms, is in the slot
// with the number t mod n. The list of a slot is ordered by due time.
//
// The number of slots grows and shrinks with the number of entries, so that adding, removing and expiring an entry take
// constant time.
type wheelSlots struct {
	slots       []wheelList
	occupied    []uint64 // one bit for each slot
	count       int
	turnedUntil int64 // ms; entries due until then have expired
	next        int64 // earliest due time, noDue, or dueUnknown if it must be searched
}

const dueUnknown = -1

func newWheelSlots(n int) wheelSlots {
	return wheelSlots{slots: make([]wheelList, n), occupied: make([]uint64, n/64), next: noDue}
}

func (w *wheelSlots) insert(e *wheelEntry) {
	if w.count == len(w.slots) {
		w.resize(2 * len(w.slots))
	}
	w.put(e)
	w.count++
	if w.next != dueUnknown {
		w.next = min(w.next, e.at)
	}
}

func (w *wheelSlots) put(e *wheelEntry) {
	s := w.slotOf(e.at)
	w.slots[s].insert(e)
	w.occupied[s/64] |= 1 << (s % 64)
}

func (w *wheelSlots) remove(e *wheelEntry) {
	w.take(e)
	if e.at == w.next {
		w.next = dueUnknown
	}
	w.shrink()
}

func (w *wheelSlots) take(e *wheelEntry) {
	s := w.slotOf(e.at)
	w.slots[s].remove(e)
	if w.slots[s].first == nil {
		w.occupied[s/64] &^= 1 << (s % 64)
	}
	w.count--
}

func (w *wheelSlots) expire(now int64) []*wheelEntry {
	if now <= w.turnedUntil {
		return nil
	}
	var expired []*wheelEntry
	if w.earliest() <= now {
		w.visit(func(slot *wheelList, offset int64) bool {
			if w.turnedUntil+offset > now {
				return false
			}
			for slot.first != nil && slot.first.at <= now {
				expired = append(expired, slot.first)
				w.take(slot.first)
			}
			return true
		})
		byDue := func(a, b *wheelEntry) int { return cmp.Compare(a.at, b.at) }
		slices.SortStableFunc(expired, byDue) // One slot may hold entries of several revolutions.
		w.next = dueUnknown
	}
	w.turnedUntil = now
	w.shrink()
	return expired
}

func (w *wheelSlots) earliest() int64 {
	if w.next != dueUnknown {
		return w.next
	}
	w.next = noDue
	w.visit(func(slot *wheelList, offset int64) bool {
		w.next = min(w.next, slot.first.at)
		// The method visit goes on to the next slot if this function returns true. Return true while all entries found
		// are due after the time of this slot, because a later slot may hold an earlier entry. Otherwise w.next is the
		// earliest time, because later slots hold only later entries.
		return w.next > w.turnedUntil+offset
	})
	return w.next
}

// visit calls f for each occupied slot, in the order in which the wheel reaches it, until f returns false. offset is
// the distance from turnedUntil in ms. f may empty the slot.
func (w *wheelSlots) visit(f func(slot *wheelList, offset int64) bool) {
	n := int64(len(w.slots))
	for offset := int64(1); offset <= n; {
		s := w.slotOf(w.turnedUntil + offset)
		bitsAhead := w.occupied[s/64] >> (s % 64)
		if bitsAhead == 0 {
			offset += 64 - s%64
			continue
		}
		skip := int64(bits.TrailingZeros64(bitsAhead))
		if offset += skip; offset > n || !f(&w.slots[s+skip], offset) {
			return
		}
		offset++
	}
}

func (w *wheelSlots) slotOf(at int64) int64 { return at & int64(len(w.slots)-1) }

// shrink makes a wheel with few entries smaller. It leaves some room, so that the wheel is not resized each time an
// entry comes or goes.
func (w *wheelSlots) shrink() {
	if n := len(w.slots); n > minWheelSlots && w.count < n/8 {
		w.resize(max(minWheelSlots, n/4))
	}
}

func (w *wheelSlots) resize(n int) {
	old := w.slots
	w.slots, w.occupied = make([]wheelList, n), make([]uint64, n/64)
	for i := range old {
		for e := old[i].first; e != nil; {
			next := e.next
			w.put(e)
			e = next
		}
	}
}
