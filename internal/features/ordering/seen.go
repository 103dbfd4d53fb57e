package ordering

import (
	"sync"

	"github.com/compensator-go/compensator/processlog"
)

type orderingKey struct{ businessType, key string }

// seenEntries remembers the entries of ordering keys that this process has read, in the order of each key. The zero
// value is ready to use.
//
// Before a claimed entry starts, this process must know two facts:
//
//   - The entry is the first of its key.
//   - No other process runs a later entry of the key.
//
// For an entry that is not in seenEntries, this process reads both facts from the database. For a seen entry, it reads
// only the first fact. The second fact is certain: another process that claims a later entry reads the key, finds the
// seen entry in front and gives up its claim. The first fact is not certain, because an entry with an earlier position
// may have committed since seenEntries was filled.
//
// An entry stays seen until it ends, but only within one epoch. A requeue starts another epoch.
type seenEntries struct {
	mu   sync.Mutex // guards the fields below
	keys map[orderingKey]*seenKey
	size int
}

type seenKey struct {
	epochs map[processlog.ID]uint32 // epochs of the entries that have not ended in this process
	order  []processlog.ID          // the first ones may have ended
}

// maxSeen is the maximum number of seen entries. The memory for this number of entries is about ten megabytes.
const maxSeen = 100_000

// add remembers the entries of one key. The parameter members lists these entries in their order. If the number of
// entries of all keys would exceed maxSeen, add first forgets all other keys.
func (s *seenEntries) add(key orderingKey, members []processlog.Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(key)
	if len(members) < 2 { // A key with one entry needs no memory: the caller already knows that it is first.
		return
	}
	if s.size+len(members) > maxSeen {
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

func (s *seenEntries) removeLocked(key orderingKey) {
	if k := s.keys[key]; k != nil {
		s.size -= len(k.epochs)
		delete(s.keys, key)
	}
}

func (s *seenEntries) contains(position processlog.Position) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[orderingKey{position.BusinessType, position.Key}]
	if k == nil {
		return false
	}
	epoch, found := k.epochs[position.ID]
	return found && epoch == position.Epoch
}

// successorOf returns the entry that follows the entry at the given position. It returns zero if this process does not
// know the next entry.
func (s *seenEntries) successorOf(position processlog.Position) (next processlog.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[orderingKey{position.BusinessType, position.Key}]
	if k == nil {
		return next
	}
	first := true
	for _, id := range k.order {
		epoch, notEnded := k.epochs[id]
		switch {
		case !notEnded:
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

// remove forgets the entry at the given position, because the entry has ended. The result next is the seen entry that
// is now the first of the same key. If this process has seen no other entry of the key, next is zero. An entry with an
// earlier position may have committed since the read, so next may not be the first in the database.
func (s *seenEntries) remove(position processlog.Position) (next processlog.ID) {
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
		if _, notEnded := k.epochs[k.order[0]]; notEnded {
			return k.order[0]
		}
		k.order = k.order[1:]
	}
	s.removeLocked(key)
	return next
}

func (s *seenEntries) forgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys, s.size = nil, 0
}
