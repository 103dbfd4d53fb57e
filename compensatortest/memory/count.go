package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/compensator-go/compensator/processlog"
)

// Count implements processlog.Store.
func (s *Store) Count(ctx context.Context, tx processlog.Tx, filter processlog.CountFilter) ([]processlog.Count, error) {
	ownTx, err := s.unwrapOptional(ctx, tx)
	if err != nil {
		return nil, err
	}
	const unlimited = 1 << 30
	if filter.AtMost < 0 || filter.AtMost > unlimited {
		return nil, &processlog.FieldError{Field: "AtMost", Reason: fmt.Sprintf("%d: want 0 to %d", filter.AtMost, unlimited)}
	}
	maxCount := cmp.Or(filter.AtMost, 10_000)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ownTx.refusalLocked(); err != nil {
		return nil, err
	}
	versions := s.seenLocked(ownTx, func(v *version) bool {
		return processlog.Filter{BatchID: filter.BatchID, BusinessType: filter.BusinessType}.Admits(&v.entry)
	})
	hasMore := false
	if filter.BatchID != "" && len(versions) > maxCount { // For a batch, maxCount limits the sum of all counts.
		versions, hasMore = versions[:maxCount+1], true
	}
	counts := make(map[group]processlog.Count)
	for _, v := range versions {
		count := counts[v.groupOf()]
		count.BusinessType, count.State = v.entry.BusinessType, v.entry.State
		count.More = hasMore || count.N == maxCount
		count.N = min(count.N+1, maxCount)
		counts[v.groupOf()] = count
	}
	return slices.DeleteFunc(sortedGroups(counts), func(c processlog.Count) bool {
		return len(filter.States) > 0 && !slices.Contains(filter.States, c.State)
	}), nil
}

type group struct {
	businessType string
	state        processlog.State
}

func (v *version) groupOf() group { return group{v.entry.BusinessType, v.entry.State} }

func sortedGroups[T any](groups map[group]T) []T {
	var keys []group
	for key := range groups {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b group) int {
		return cmp.Or(cmp.Compare(a.businessType, b.businessType), cmp.Compare(a.state, b.state))
	})
	var values []T
	for _, key := range keys {
		values = append(values, groups[key])
	}
	return values
}
