package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/compensator-go/compensator/processlog"
)

// A noteSet has the notes of the entries under one ordering key.
type (
	orderingKey struct{ businessType, key string }
	noteSet     map[processlog.ID]note
)

type note struct {
	epoch          uint32
	blockedVersion uint64 // version of the row after Block (0: the entry was not blocked)
	orderID        processlog.ID
}

func cloneOrdering(keyStates map[orderingKey]noteSet) map[orderingKey]noteSet {
	clone := make(map[orderingKey]noteSet, len(keyStates))
	for key, l := range keyStates {
		clone[key] = maps.Clone(l)
	}
	return clone
}

// Join implements processlog.Store.
func (s *Store) Join(ctx context.Context, tx processlog.Tx, positions []processlog.Position) error {
	ownTx, err := s.unwrap(ctx, tx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ownTx.refusalLocked(); err != nil {
		return err
	}
	ownTx.joins = append(ownTx.joins, positions...)
	return nil
}

func (s *Store) joinLocked(positions []processlog.Position) {
	for _, t := range positions {
		s.noteLocked(t, 0)
	}
}

// noteLocked stores the note of an entry under its ordering key. If the entry already has a note under this key, its
// orderID stays, because the entry keeps its position.
func (s *Store) noteLocked(t processlog.Position, blockedVersion uint64) {
	key := orderingKey{t.BusinessType, t.Key}
	if s.ordering[key] == nil {
		s.ordering[key] = make(noteSet)
	}
	orderID := t.OrderID
	if orderID.IsZero() {
		orderID = t.ID
	}
	if oldNote, isNoted := s.ordering[key][t.ID]; isNoted {
		orderID = oldNote.orderID
	}
	s.ordering[key][t.ID] = note{t.Epoch, blockedVersion, orderID}
}

func (s *Store) leaveKeyLocked(businessType string, id processlog.ID) {
	for key, l := range s.ordering {
		if key.businessType == businessType {
			delete(l, id)
		}
	}
}

func (s *Store) inPositionLocked(key orderingKey) []processlog.ID {
	notes := s.ordering[key]
	return slices.SortedFunc(maps.Keys(notes), func(a, b processlog.ID) int {
		return cmp.Or(notes[a].orderID.Compare(notes[b].orderID), a.Compare(b))
	})
}

// countingLocked returns the entries of the key that have not ended, in order of position. If dead is true, the result
// also has the dead entries.
func (s *Store) countingLocked(key orderingKey, dead bool) (list []*version) {
	for _, id := range s.inPositionLocked(key) {
		if v := s.countsLocked(key, id, dead); v != nil {
			list = append(list, v)
		}
	}
	return list
}

// countsLocked returns the committed version of the entry if it has not ended, and nil otherwise. If dead is true,
// countsLocked also returns the version of a dead entry.
func (s *Store) countsLocked(key orderingKey, id processlog.ID, dead bool) *version {
	row := s.rows[id]
	if row == nil || row.committed == nil || row.committed.entry.BusinessType != key.businessType {
		return nil
	}
	if state := row.committed.entry.State; state.Terminal() && !(dead && state == processlog.Dead) {
		return nil
	}
	return row.committed
}

func (s *Store) firstLocked(key orderingKey, dead bool) *version {
	if counting := s.countingLocked(key, dead); len(counting) > 0 {
		return counting[0]
	}
	return nil
}

// Blocked implements processlog.Store.
func (s *Store) Blocked(ctx context.Context, businessType string, ids []processlog.ID, dead bool) (blocked []processlog.ID, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	isBlocked := make(map[processlog.ID]bool)
	for key, notes := range s.ordering {
		if key.businessType != businessType {
			continue
		}
		first := s.firstLocked(key, dead)
		for id, note := range notes {
			row := s.rows[id]
			isKnown := row != nil && row.committed != nil && row.committed.entry.Epoch == note.epoch
			isBlocked[id] = isBlocked[id] || isKnown && first != nil && first.entry.ID != id
		}
	}
	for _, id := range ids {
		if isBlocked[id] {
			blocked = append(blocked, id)
		}
	}
	return blocked, nil
}

// BlockedBy implements processlog.Operations.
func (s *Store) BlockedBy(ctx context.Context, businessType string, id processlog.ID, dead bool) (by processlog.ID, err error) {
	if err := ctx.Err(); err != nil {
		return by, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	row := s.rows[id]
	if row == nil || row.committed == nil {
		return by, nil
	}
	for key, notes := range s.ordering {
		note, noted := notes[id]
		if key.businessType != businessType || !noted || note.epoch != row.committed.entry.Epoch {
			continue
		}
		if first := s.firstLocked(key, dead); first != nil && first.entry.ID != id {
			by = first.entry.ID
		}
	}
	return by, nil
}

// Fronts implements processlog.Store.
func (s *Store) Fronts(ctx context.Context, businessType, afterKey string, limit int, dead bool) (ids []processlog.ID, lastKey string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for key, notes := range s.ordering {
		if key.businessType == businessType && key.key > afterKey && len(notes) > 0 {
			keys = append(keys, key.key)
		}
	}
	slices.Sort(keys)
	if len(keys) >= limit {
		keys = keys[:limit]
		lastKey = keys[limit-1]
	}
	now := s.nowLocked()
	for _, key := range keys {
		if first := s.firstLocked(orderingKey{businessType, key}, dead); first.isReady(now) {
			ids = append(ids, first.entry.ID)
		}
	}
	return ids, lastKey, nil
}

func (v *version) isReady(now int64) bool {
	return v != nil && !v.entry.State.Terminal() && v.nextAt <= now && !v.isLeased(now)
}

// Firsts implements processlog.Store.
func (s *Store) Firsts(ctx context.Context, businessType string, positions []processlog.Position, dead bool) (map[string]processlog.KeyState, error) {
	states, err := s.KeyStates(ctx, businessType, positions, processlog.Token{}, dead)
	for key, state := range states {
		states[key] = processlog.KeyState{First: state.First, Known: state.Known}
	}
	return states, err
}

// KeyStates implements processlog.Store.
func (s *Store) KeyStates(ctx context.Context, businessType string, positions []processlog.Position, token processlog.Token, dead bool) (map[string]processlog.KeyState, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	keyStates := make(map[string]processlog.KeyState)
	for _, t := range positions {
		key := orderingKey{businessType, t.Key}
		l, isFound := keyStates[t.Key]
		if !isFound {
			l = s.keyStateLocked(key, token, now, dead)
		}
		if n, isNoted := s.ordering[key][t.ID]; isNoted && n.epoch == t.Epoch {
			l.Known++
		}
		keyStates[t.Key] = l
	}
	return keyStates, nil
}

func (s *Store) keyStateLocked(key orderingKey, token processlog.Token, now int64, dead bool) (l processlog.KeyState) {
	isClaimed := false
	for i, v := range s.countingLocked(key, dead) {
		if i == 0 {
			l.First = v.entry.ID
		}
		l.Taken = l.Taken || v.isLeased(now) && v.token != token
		isClaimed = isClaimed || v.leaseUntil != 0 && v.token != token
		if i < processlog.MaxMembers {
			l.Members = append(l.Members, processlog.Member{ID: v.entry.ID, Epoch: s.ordering[key][v.entry.ID].epoch})
		}
	}
	if isClaimed {
		l.Members = nil
	}
	return l
}

// Block implements processlog.Store.
func (s *Store) Block(ctx context.Context, blockedEntries []processlog.BlockedEntry, token processlog.Token) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ids := make([]processlog.ID, len(blockedEntries))
	for i, p := range blockedEntries {
		ids[i] = p.ID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range blockedEntries {
		s.noteLocked(p.Position, p.Version+1)
	}
	busyIndexes, err := s.eachLocked(ctx, ids, func(i int, row *storedRow) {
		if row == nil || row.committed.token != token || row.committed.leaseUntil == 0 || row.committed.entry.DeliveryCount == 0 {
			return
		}
		s.writeLocked(nil, row, row.committed.withBlock(blockedEntries[i].Wait, s.nowLocked()), nil)
	})
	if err == nil && len(busyIndexes) > 0 {
		err = processlog.ErrBusy
	}
	if err != nil {
		return fmt.Errorf("block %d entries: %w", len(ids), err)
	}
	return nil
}

// Advance implements processlog.Store.
func (s *Store) Advance(ctx context.Context, businessType string, positions []processlog.Position, dead bool) ([]processlog.ID, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var advanced []processlog.ID
	var keys []string
	for _, t := range positions {
		keys = append(keys, t.Key)
	}
	slices.Sort(keys)
	for _, k := range slices.Compact(keys) {
		key := orderingKey{businessType, k}
		counting := s.countingLocked(key, dead)
		s.clearLocked(key, counting, positions)
		if len(counting) == 0 {
			continue
		}
		first := counting[0]
		isTaken := slices.ContainsFunc(counting, func(v *version) bool { return v.isLeased(s.nowLocked()) })
		if first.isReady(s.nowLocked()) || !isTaken && s.wakeFirstLocked(key, first.entry.ID) {
			advanced = append(advanced, first.entry.ID)
		}
	}
	return advanced, nil
}

// clearLocked deletes the notes of ended entries of a key, from the first position on. The parameter counting lists the
// entries that have not ended. clearLocked stops at the first of these entries.
//
// The parameter positions lists the ended entries that the caller of Advance knows. The caller deletes the notes of
// these entries itself, with Forget. If one of these notes is the first of the key, clearLocked deletes nothing.
func (s *Store) clearLocked(key orderingKey, counting []*version, positions []processlog.Position) {
	for i, id := range s.inPositionLocked(key) {
		first := len(counting) > 0 && counting[0].entry.ID == id
		if first || i == 0 && slices.ContainsFunc(positions, func(t processlog.Position) bool { return t.Key == key.key && t.ID == id }) {
			return
		}
		delete(s.ordering[key], id)
	}
}

// Forget implements processlog.Store.
func (s *Store) Forget(ctx context.Context, positions []processlog.Position) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range positions {
		notes := s.ordering[orderingKey{t.BusinessType, t.Key}]
		if n, isNoted := notes[t.ID]; isNoted && n.epoch == t.Epoch {
			delete(notes, t.ID)
		}
	}
	return nil
}

func (s *Store) wakeFirstLocked(key orderingKey, id processlog.ID) bool {
	row := s.rows[id]
	v := row.committed
	if p := s.ordering[key][id].blockedVersion; p == 0 || p != v.entry.Version || v.leaseUntil != 0 || v.entry.State.Terminal() || !row.freeFor(nil) {
		return false
	}
	s.writeLocked(nil, row, v.withWake(s.nowLocked()), nil)
	return true
}
