package ordering

import (
	"sync"

	"github.com/compensator-go/compensator/processlog"
)

// orderingKey names the entries of one ordering key.
type orderingKey struct{ businessType, key string }

// seen remembers, in their order, entries beside which no entry behind them can run. The zero value is ready to use.
//
// A process reads all entries of a key while no other of them is leased. A process that claims one of them later looks after that
// claim, finds the entries that were read in front of it, and gives way. So an entry that was read, and is the first of its key
// now, may start without another look at the leases behind it. An entry that commits later, with an earlier position, was not
// read. The leases behind it are looked at when it is the first of its key.
//
// An entry stays seen within one epoch: until it ends it counts, in whichever state. A requeue begins another epoch.
type seen struct {
	mu   sync.Mutex // guards the fields below
	keys map[orderingKey]*seenKey
	size int // entries
}

// seenKey is what is seen of a key.
type seenKey struct {
	epochs map[processlog.ID]uint32 // of those that have not ended here
	order  []processlog.ID          // may begin with some that have ended
}

// mostSeen bounds the memory: some ten megabytes.
const mostSeen = 100_000

// add replaces what is seen of a key.
func (s *seen) add(key orderingKey, members []processlog.Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(key)
	if len(members) < 2 { // the one that asks has its answer already
		return
	}
	if s.size+len(members) > mostSeen {
		s.keys, s.size = nil, 0
	}
	k := &seenKey{epochs: make(map[processlog.ID]uint32, len(members)), order: make([]processlog.ID, len(members))}
	for i, m := range members {
		k.epochs[m.ID], k.order[i] = m.Epoch, m.ID
	}
	if s.keys == nil {
		s.keys = make(map[orderingKey]*seenKey)
	}
	s.keys[key] = k
	s.size += len(members)
}

func (s *seen) removeLocked(key orderingKey) {
	if k := s.keys[key]; k != nil {
		s.size -= len(k.epochs)
		delete(s.keys, key)
	}
}

// has reports whether an entry is seen.
func (s *seen) has(position processlog.Position) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[orderingKey{position.BusinessType, position.Key}]
	if k == nil {
		return false
	}
	epoch, found := k.epochs[position.ID]
	return found && epoch == position.Epoch
}

// behind returns the entry that is probably the first of its key once an entry has ended, or zero if that is not known.
func (s *seen) behind(position processlog.Position) (next processlog.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[orderingKey{position.BusinessType, position.Key}]
	if k == nil {
		return next
	}
	first := true
	for _, id := range k.order {
		epoch, open := k.epochs[id]
		switch {
		case !open:
		case !first:
			return id
		case id != position.ID || epoch != position.Epoch:
			return next
		default:
			first = false
		}
	}
	return next
}

// ended forgets an entry, and returns the entry that is probably the first of its key now, or zero if that is not known.
func (s *seen) ended(position processlog.Position) (next processlog.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := orderingKey{position.BusinessType, position.Key}
	k := s.keys[key]
	if k == nil {
		return next
	}
	if _, found := k.epochs[position.ID]; found {
		delete(k.epochs, position.ID)
		s.size--
	}
	for len(k.order) > 0 {
		if _, open := k.epochs[k.order[0]]; open {
			return k.order[0]
		}
		k.order = k.order[1:]
	}
	s.removeLocked(key)
	return next
}

func (s *seen) forgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys, s.size = nil, 0
}
