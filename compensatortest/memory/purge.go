package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Purge implements processlog.Store: by type, oldest first. It leaves rows that a transaction holds for another
// time.
func (s *Store) Purge(ctx context.Context, businessType string, state processlog.State, age time.Duration, limit int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if !slices.Contains(processlog.States[:], state) || !state.Terminal() {
		return 0, &processlog.FieldError{Field: "state", Reason: state.String() + ": want a terminal state"}
	}
	if age < 0 {
		return 0, &processlog.FieldError{Field: "age", Reason: age.String() + " is negative"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	old := s.matchingLocked(func(v *version) bool {
		return v.entry.State == state && (businessType == "" || v.entry.BusinessType == businessType) && v.nextAt < now-processlog.Millis(age)
	})
	slices.SortFunc(old, func(a, b *version) int {
		return cmp.Or(cmp.Compare(a.entry.BusinessType, b.entry.BusinessType), place(a.scheduled(now), b.scheduled(now)))
	})
	purged, looked := 0, 0
	for i, v := range old {
		if i > 0 && v.entry.BusinessType != old[i-1].entry.BusinessType {
			looked = purged // rows that are held count against the limit within their type only
		}
		if looked++; looked > limit {
			continue
		}
		if row := s.rows[v.entry.ID]; row.freeFor(nil) {
			purged++
			s.removeLocked(row)
			s.watch(v.row(now), processlog.Row{})
		}
	}
	return purged, nil
}
