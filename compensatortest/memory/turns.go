package memory

import (
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

// noted is what is known of one who stands in a line.
type noted struct {
	epoch  uint32
	parked uint64 // the version that a Park has left; 0: none
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

func (s *Store) noteLocked(t processlog.Turn, parked uint64) {
	key := lineKey{t.BusinessType, t.Key}
	if s.lines[key] == nil {
		s.lines[key] = make(line)
	}
	s.lines[key][t.ID] = noted{t.Epoch, parked}
}

// leaveLineLocked forgets the turns of an erased entry that has ended.
func (s *Store) leaveLineLocked(businessType string, id processlog.ID) {
	for key, l := range s.lines {
		if key.businessType == businessType {
			delete(l, id)
		}
	}
}

// standingLocked lists the committed entries that count in a line, by ascending id.
func (s *Store) standingLocked(key lineKey, dead bool) (list []*version) {
	for _, id := range slices.SortedFunc(maps.Keys(s.lines[key]), processlog.ID.Compare) {
		row := s.rows[id]
		if row == nil || row.committed == nil || row.committed.entry.BusinessType != key.businessType {
			continue
		}
		if state := row.committed.entry.State; !state.Terminal() || dead && state == processlog.Dead {
			list = append(list, row.committed)
		}
	}
	return list
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
			l.Length = len(s.lines[key])
			for i, v := range s.standingLocked(key, dead) {
				if i == 0 {
					l.First = v.entry.ID
				}
				l.Taken = l.Taken || v.leased(now) && v.token != token
			}
		}
		if n, there := s.lines[key][t.ID]; there && n.epoch == t.Epoch {
			l.Known++
		}
		lines[t.Key] = l
	}
	return lines, nil
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
func (s *Store) Advance(ctx context.Context, businessType string, keys []string, dead bool) ([]processlog.ID, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var woken []processlog.ID
	for _, k := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		key := lineKey{businessType, k}
		standing := s.standingLocked(key, dead)
		maps.DeleteFunc(s.lines[key], func(id processlog.ID, _ noted) bool {
			return len(standing) == 0 || id.Compare(standing[0].entry.ID) < 0
		})
		taken := slices.ContainsFunc(standing, func(v *version) bool { return v.leased(s.nowLocked()) })
		if len(standing) > 0 && !taken && s.wakeFirstLocked(key, standing[0].entry.ID) {
			woken = append(woken, standing[0].entry.ID)
		}
	}
	return woken, nil
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
