package timingwheel

import (
	"math"

	"github.com/compensator-go/compensator/processlog"
)

const noDue = math.MaxInt64

type wheelType struct {
	members    map[processlog.ID]*wheelEntry
	dueList    wheelList
	laterSlots wheelSlots
	largest    int
}

// wheelEntry is in exactly one list.
type wheelEntry struct {
	id         processlog.ID
	at         int64 // due time, or lease end while claimed; ms since the wheel's start
	isDue      bool  // in wheelType.dueList, otherwise in wheelType.laterSlots
	prev, next *wheelEntry
}

func newWheelType() *wheelType {
	return &wheelType{members: make(map[processlog.ID]*wheelEntry), laterSlots: newWheelSlots(minWheelSlots)}
}

func (t *wheelType) turn(now int64) {
	for _, e := range t.laterSlots.expire(now) {
		e.isDue = true
		t.dueList.insert(e)
	}
}

func (t *wheelType) head() int64 {
	if t.dueList.first != nil {
		return t.dueList.first.at
	}
	return t.laterSlots.earliest()
}

func (t *wheelType) add(id processlog.ID, at int64) {
	e := &wheelEntry{id: id}
	t.members[id] = e
	t.largest = max(t.largest, len(t.members))
	t.place(e, at)
}

// take removes up to limit due entries from the field dueList. The entries stay in the map members, but are in no list.
// So the caller must call the method place for each entry.
func (t *wheelType) take(limit int) []*wheelEntry {
	var taken []*wheelEntry
	for len(taken) < limit && t.dueList.first != nil {
		e := t.dueList.first
		t.dueList.remove(e)
		taken = append(taken, e)
	}
	return taken
}

// place inserts an entry that is in no list.
func (t *wheelType) place(e *wheelEntry, at int64) {
	e.at = at
	e.isDue = at <= t.laterSlots.turnedUntil
	if e.isDue {
		t.dueList.insert(e)
	} else {
		t.laterSlots.insert(e)
	}
}

func (t *wheelType) move(e *wheelEntry, at int64) {
	t.detach(e)
	t.place(e, at)
}

func (t *wheelType) remove(e *wheelEntry) {
	t.detach(e)
	delete(t.members, e.id)
	t.shrinkMembers()
}

func (t *wheelType) detach(e *wheelEntry) {
	if e.isDue {
		t.dueList.remove(e)
	} else {
		t.laterSlots.remove(e)
	}
}

// shrinkMembers copies the map, because a map never frees memory.
func (t *wheelType) shrinkMembers() {
	if t.largest < 8*minWheelSlots || len(t.members)*8 > t.largest {
		return
	}
	members := make(map[processlog.ID]*wheelEntry, len(t.members))
	for id, e := range t.members {
		members[id] = e
	}
	t.members, t.largest = members, len(members)
}

// wheelList is ordered by due time, then by arrival.
type wheelList struct{ first, last *wheelEntry }

// insert searches from the end, where most entries belong.
func (l *wheelList) insert(e *wheelEntry) {
	before := l.last
	for before != nil && before.at > e.at {
		before = before.prev
	}
	e.prev = before
	if before == nil {
		e.next, l.first = l.first, e
	} else {
		e.next, before.next = before.next, e
	}
	if e.next == nil {
		l.last = e
	} else {
		e.next.prev = e
	}
}

func (l *wheelList) remove(e *wheelEntry) {
	if e.prev == nil {
		l.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
}
