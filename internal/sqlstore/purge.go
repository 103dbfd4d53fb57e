package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

// purgeRows is how many rows one statement deletes: few, so that their locks are short.
const purgeRows = 100

// Purge implements Store. The rows are found along the due index without a lock, oldest first within each
// type, and deleted by primary key under the condition that nobody moved them on since.
func (s *Store) Purge(ctx context.Context, businessType string, state processlog.State, age time.Duration, limit int) (int, error) {
	if !slices.Contains(processlog.States[:], state) || !state.Terminal() {
		return 0, &processlog.FieldError{Field: "state", Reason: state.String() + ": want a terminal state"}
	}
	if age < 0 {
		return 0, &processlog.FieldError{Field: "age", Reason: age.String() + " is negative"}
	}
	groups := []group{{state: state, businessType: businessType}}
	if businessType == "" {
		var err error
		if groups, err = s.groups(ctx, nil, []processlog.State{state}, nil); err != nil {
			return 0, fmt.Errorf("compensator: purge: %w", err)
		}
	}
	purged := 0
	for _, g := range groups {
		if purged >= limit {
			break
		}
		n, err := s.purgeGroup(ctx, g, age, limit-purged)
		purged += n
		if err != nil {
			return purged, fmt.Errorf("compensator: purge %s entries of %q: %w", state, g.businessType, err)
		}
	}
	return purged, nil
}

func (s *Store) purgeGroup(ctx context.Context, g group, age time.Duration, limit int) (purged int, err error) {
	old := fmt.Sprintf("next_at<%s-%d", s.d.now, processlog.Millis(age))
	ids, err := queryIDs(ctx, s.pool(), fmt.Sprintf("SELECT id FROM %s%s WHERE %s AND %s ORDER BY next_at, id LIMIT %d",
		s.table.quoted(""), s.d.dueIndex, g.where(s), old, limit))
	if err != nil {
		return 0, err
	}
	for chunk := range slices.Chunk(ids, purgeRows) {
		// The sum keeps the due index out of the plan: through it the rows of others would be locked too.
		n, _, err := s.updateRows(ctx, chunk, func(ids []processlog.ID) string {
			return fmt.Sprintf("%s WHERE id IN (%s) AND state+0=%d AND %s", s.d.deleteByID(s.table.quoted("")), idList(ids), g.state, old)
		})
		failpoint.Reach(failpoint.PurgePart)
		purged += int(n) // busy rows are left for the next time
		if err != nil {
			return purged, err
		}
	}
	return purged, nil
}
