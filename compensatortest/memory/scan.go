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
	heads := make(map[group]processlog.Head)
	for _, v := range s.matchingLocked(func(v *version) bool { return !v.entry.State.Terminal() }) {
		head, isFound := heads[v.groupOf()]
		if dueIn := millisToDuration(v.nextAt - now); !isFound || dueIn < head.DueIn {
			heads[v.groupOf()] = processlog.Head{BusinessType: v.entry.BusinessType, State: v.entry.State, DueIn: dueIn}
		}
	}
	return sortedGroups(heads), nil
}

// Scan implements processlog.Store.
func (s *Store) Scan(ctx context.Context, window processlog.Window) ([]processlog.Scheduled, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	var scheduled []processlog.Scheduled
	for _, v := range s.matchingLocked(func(v *version) bool { return v.isWithin(window, now) }) {
		scheduled = append(scheduled, v.scheduledEntry(now))
	}
	slices.SortFunc(scheduled, compareDue)
	return scheduled[:min(len(scheduled), max(window.Limit, 0))], nil
}

func (v *version) isWithin(window processlog.Window, now int64) bool {
	dueIn := millisToDuration(v.nextAt - now)
	return v.entry.BusinessType == window.BusinessType && v.entry.State == window.State && !v.entry.State.Terminal() &&
		window.From <= dueIn && dueIn < window.To && !(window.Free && v.isLeased(now)) &&
		(window.After.ID.IsZero() || compareDue(v.scheduledEntry(now), window.After) > 0)
}
