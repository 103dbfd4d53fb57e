package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// maxPassed is the number of locked rows of one type that a Purge skips before it stops.
const maxPassed = 1000

// Purge implements processlog.Store. It deletes the oldest rows of a type first. It skips rows that a transaction
// holds.
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
	candidates := s.matchingLocked(func(v *version) bool {
		return v.entry.State == state && (businessType == "" || v.entry.BusinessType == businessType) && v.nextAt < now-processlog.Millis(age)
	})
	slices.SortFunc(candidates, func(a, b *version) int {
		return cmp.Or(cmp.Compare(a.entry.BusinessType, b.entry.BusinessType), compareDue(a.scheduledEntry(now), b.scheduledEntry(now)))
	})
	purged, skipped := 0, 0
	for i, v := range candidates {
		if i > 0 && v.entry.BusinessType != candidates[i-1].entry.BusinessType {
			skipped = 0
		}
		switch row := s.rows[v.entry.ID]; {
		case purged >= limit, skipped > maxPassed:
		case row.freeFor(nil):
			purged++
			s.removeLocked(row)
			s.watch(v.fullRow(now), processlog.Row{})
		default:
			skipped++
		}
	}
	return purged, nil
}
