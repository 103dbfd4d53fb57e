package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/compensator-go/compensator/processlog"
)

// lineKey names a line, and line is who is noted in it.
type (
	lineKey struct{ businessType, key string }
	line    map[processlog.ID]noted
)

// noted is the note of an entry.
type noted struct {
	epoch  uint32
	parked uint64 // the version that a Park has left; 0: none
	place  processlog.ID
}

func cloneLines(lines map[lineKey]line) map[lineKey]line {
	clone := make(map[lineKey]line, len(lines))
	for key, l := range lines {
		clone[key] = maps.Clone(l)
	}
	return clone
}

// Join implements processlog.Store.
func (s *Store) Join(ctx context.Context, tx processlog.Tx, turns []processlog.Turn) error {
	own, err := s.unwrap(ctx, tx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := own.refusalLocked(); err != nil {
		return err
	}
	own.joins = append(own.joins, turns...)
	return nil
}

// joinLocked notes turns that are committed.
func (s *Store) joinLocked(turns []processlog.Turn) {
	for _, t := range turns {
		s.noteLocked(t, 0)
	}
}

// noteLocked writes a note. One that exists keeps its place.
func (s *Store) noteLocked(t processlog.Turn, parked uint64) {
	key := lineKey{t.BusinessType, t.Key}
	if s.lines[key] == nil {
		s.lines[key] = make(line)
	}
	place := t.Place
	if place.IsZero() {
		place = t.ID
	}
	if before, found := s.lines[key][t.ID]; found {
		place = before.place
	}
	s.lines[key][t.ID] = noted{t.Epoch, parked, place}
}

// leaveLineLocked forgets the turns of an erased entry that has ended.
func (s *Store) leaveLineLocked(businessType string, id processlog.ID) {
	for key, l := range s.lines {
		if key.businessType == businessType {
			delete(l, id)
		}
	}
}

// placedLocked lists the notes of a key in order.
func (s *Store) placedLocked(key lineKey) []processlog.ID {
	notes := s.lines[key]
	return slices.SortedFunc(maps.Keys(notes), func(a, b processlog.ID) int {
		return cmp.Or(notes[a].place.Compare(notes[b].place), a.Compare(b))
	})
}

// standingLocked lists the committed entries that count among those of a key, in order.
func (s *Store) standingLocked(key lineKey, dead bool) (list []*version) {
	for _, id := range s.placedLocked(key) {
		if v := s.countsLocked(key, id, dead); v != nil {
			list = append(list, v)
		}
	}
	return list
}

// countsLocked returns the committed version of an entry that counts under a key, and nil for any other.
func (s *Store) countsLocked(key lineKey, id processlog.ID, dead bool) *version {
	row := s.rows[id]
	if row == nil || row.committed == nil || row.committed.entry.BusinessType != key.businessType {
		return nil
	}
	if state := row.committed.entry.State; state.Terminal() && !(dead && state == processlog.Dead) {
		return nil
	}
	return row.committed
}

// firstLocked returns the first entry that counts under a key, and nil where none does.
func (s *Store) firstLocked(key lineKey, dead bool) *version {
	if standing := s.standingLocked(key, dead); len(standing) > 0 {
		return standing[0]
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
	for key, notes := range s.lines {
		if key.businessType != businessType {
			continue
		}
		first := s.firstLocked(key, dead)
		for id, note := range notes {
			row := s.rows[id]
			known := row != nil && row.committed != nil && row.committed.entry.Epoch == note.epoch
			isBlocked[id] = isBlocked[id] || known && first != nil && first.entry.ID != id
		}
	}
	for _, id := range ids {
		if isBlocked[id] {
			blocked = append(blocked, id)
		}
	}
	return blocked, nil
}

// Fronts implements processlog.Store.
func (s *Store) Fronts(ctx context.Context, businessType, after string, limit int, dead bool) (ids []processlog.ID, last string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for key, notes := range s.lines {
		if key.businessType == businessType && key.key > after && len(notes) > 0 {
			keys = append(keys, key.key)
		}
	}
	slices.Sort(keys)
	if len(keys) >= limit {
		keys = keys[:limit]
		last = keys[limit-1]
	}
	now := s.nowLocked()
	for _, key := range keys {
		if first := s.firstLocked(lineKey{businessType, key}, dead); first.ready(now) {
			ids = append(ids, first.entry.ID)
		}
	}
	return ids, last, nil
}

// ready reports whether an entry may be claimed now.
func (v *version) ready(now int64) bool {
	return v != nil && !v.entry.State.Terminal() && v.nextAt <= now && !v.leased(now)
}

// Firsts implements processlog.Store.
func (s *Store) Firsts(ctx context.Context, businessType string, turns []processlog.Turn, dead bool) (map[string]processlog.Line, error) {
	all, err := s.Lines(ctx, businessType, turns, processlog.Token{}, dead)
	for key, line := range all {
		all[key] = processlog.Line{First: line.First, Known: line.Known}
	}
	return all, err
}

// Lines implements processlog.Store.
func (s *Store) Lines(ctx context.Context, businessType string, turns []processlog.Turn, token processlog.Token, dead bool) (map[string]processlog.Line, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	lines := make(map[string]processlog.Line)
	for _, t := range turns {
		key := lineKey{businessType, t.Key}
		l, found := lines[t.Key]
		if !found {
			l = s.lineLocked(key, token, now, dead)
		}
		if n, there := s.lines[key][t.ID]; there && n.epoch == t.Epoch {
			l.Known++
		}
		lines[t.Key] = l
	}
	return lines, nil
}

func (s *Store) lineLocked(key lineKey, token processlog.Token, now int64, dead bool) (l processlog.Line) {
	claimed := false
	for i, v := range s.standingLocked(key, dead) {
		if i == 0 {
			l.First = v.entry.ID
		}
		l.Taken = l.Taken || v.leased(now) && v.token != token
		claimed = claimed || v.leaseUntil != 0 && v.token != token
		if i < processlog.MaxMembers {
			l.Members = append(l.Members, processlog.Member{ID: v.entry.ID, Epoch: s.lines[key][v.entry.ID].epoch})
		}
	}
	if claimed {
		l.Members = nil
	}
	return l
}

// Park implements processlog.Store.
func (s *Store) Park(ctx context.Context, parked []processlog.Parked, token processlog.Token) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ids := make([]processlog.ID, len(parked))
	for i, p := range parked {
		ids[i] = p.ID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range parked {
		s.noteLocked(p.Turn, p.Version+1)
	}
	busy, err := s.eachLocked(ctx, ids, func(i int, row *storedRow) {
		if row == nil || row.committed.token != token || row.committed.leaseUntil == 0 || row.committed.entry.DeliveryCount == 0 {
			return
		}
		s.writeLocked(nil, row, row.committed.parked(parked[i].Wait, s.nowLocked()), nil)
	})
	if err == nil && len(busy) > 0 {
		err = processlog.ErrBusy
	}
	if err != nil {
		return fmt.Errorf("park %d entries: %w", len(ids), err)
	}
	return nil
}

// Advance implements processlog.Store.
func (s *Store) Advance(ctx context.Context, businessType string, left []processlog.Turn, dead bool) ([]processlog.ID, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var next []processlog.ID
	var keys []string
	for _, t := range left {
		keys = append(keys, t.Key)
	}
	slices.Sort(keys)
	for _, k := range slices.Compact(keys) {
		key := lineKey{businessType, k}
		standing := s.standingLocked(key, dead)
		s.clearLocked(key, standing, left)
		if len(standing) == 0 {
			continue
		}
		first := standing[0]
		taken := slices.ContainsFunc(standing, func(v *version) bool { return v.leased(s.nowLocked()) })
		if first.ready(s.nowLocked()) || !taken && s.wakeFirstLocked(key, first.entry.ID) {
			next = append(next, first.entry.ID)
		}
	}
	return next, nil
}

// clearLocked forgets the notes in front of the first entry that counts, unless those that have ended are at the front.
func (s *Store) clearLocked(key lineKey, standing []*version, left []processlog.Turn) {
	for i, id := range s.placedLocked(key) {
		first := len(standing) > 0 && standing[0].entry.ID == id
		if first || i == 0 && slices.ContainsFunc(left, func(t processlog.Turn) bool { return t.Key == key.key && t.ID == id }) {
			return
		}
		delete(s.lines[key], id)
	}
}

// Forget implements processlog.Store.
func (s *Store) Forget(ctx context.Context, ended []processlog.Turn) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range ended {
		notes := s.lines[lineKey{t.BusinessType, t.Key}]
		if n, there := notes[t.ID]; there && n.epoch == t.Epoch {
			delete(notes, t.ID)
		}
	}
	return nil
}

// wakeFirstLocked makes the first of a line due, if it is parked.
func (s *Store) wakeFirstLocked(key lineKey, id processlog.ID) bool {
	row := s.rows[id]
	v := row.committed
	if p := s.lines[key][id].parked; p == 0 || p != v.entry.Version || v.leaseUntil != 0 || v.entry.State.Terminal() || !row.freeFor(nil) {
		return false
	}
	s.writeLocked(nil, row, v.woken(s.nowLocked()), nil)
	return true
}
