package memory

import (
	"context"
	"slices"

	"github.com/compensator-go/compensator/processlog"
)

// Heads implements processlog.Store.
func (s *Store) Heads(ctx context.Context) ([]processlog.Head, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	earliest := make(map[group]processlog.Head)
	for _, v := range s.matchingLocked(func(v *version) bool { return !v.entry.State.Terminal() }) {
		head, found := earliest[v.group()]
		if dueIn := duration(v.nextAt - now); !found || dueIn < head.DueIn {
			earliest[v.group()] = processlog.Head{BusinessType: v.entry.BusinessType, State: v.entry.State, DueIn: dueIn}
		}
	}
	return sortedGroups(earliest), nil
}

// Scan implements processlog.Store.
func (s *Store) Scan(ctx context.Context, window processlog.Window) ([]processlog.Scheduled, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	var found []processlog.Scheduled
	for _, v := range s.matchingLocked(func(v *version) bool { return v.within(window, now) }) {
		found = append(found, v.scheduled(now))
	}
	slices.SortFunc(found, place)
	return found[:min(len(found), max(window.Limit, 0))], nil
}

func (v *version) within(window processlog.Window, now int64) bool {
	dueIn := duration(v.nextAt - now)
	return v.entry.BusinessType == window.BusinessType && v.entry.State == window.State && !v.entry.State.Terminal() &&
		window.From <= dueIn && dueIn < window.To && !(window.Free && v.leased(now)) &&
		(window.After.ID.IsZero() || place(v.scheduled(now), window.After) > 0)
}
