package memory

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// CountBacklog implements processlog.Operations.
func (s *Store) CountBacklog(ctx context.Context, ranges []processlog.BacklogRange, limit int) ([]processlog.BacklogSlice, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	counted := make([]processlog.BacklogSlice, len(ranges))
	for i, r := range ranges {
		var found []processlog.Scheduled
		for _, v := range s.matchingLocked(func(v *version) bool { return v.groupOf() == group{r.BusinessType, r.State} }) {
			if at := v.scheduledEntry(now); r.After.ID.IsZero() || compareDue(at, r.After) > 0 {
				found = append(found, at)
			}
		}
		slices.SortFunc(found, compareDue)
		if len(found) >= limit {
			found = found[:limit]
			counted[i].Last = found[limit-1]
		}
		counted[i].N = len(found)
		for _, at := range found {
			if at.DueIn <= 0 {
				counted[i].Due++
			}
			if at.DueIn < -processlog.OverdueAfter {
				counted[i].Overdue++
			}
		}
	}
	return counted, nil
}

// WriteBacklog implements processlog.Operations.
func (s *Store) WriteBacklog(ctx context.Context, slot time.Time, backlog []processlog.Backlog) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if stats := &s.ops.stats; stats.backlogAt < slot.UnixMilli() {
		stats.backlogAt, stats.backlog = slot.UnixMilli(), slices.Clone(backlog)
		slices.SortFunc(stats.backlog, func(a, b processlog.Backlog) int { return strings.Compare(a.BusinessType, b.BusinessType) })
	}
	return nil
}

// ReadBacklog implements processlog.Operations.
func (s *Store) ReadBacklog(ctx context.Context) (processlog.BacklogReading, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := &s.ops.stats
	if err := ctx.Err(); err != nil || stats.backlogAt == 0 {
		return processlog.BacklogReading{}, err
	}
	return processlog.BacklogReading{Types: slices.Clone(stats.backlog), Age: millisToDuration(s.nowLocked() - stats.backlogAt), Known: true}, nil
}
