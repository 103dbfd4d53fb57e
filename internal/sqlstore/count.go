package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/compensator-go/compensator/processlog"
)

const defaultAtMost = 10_000

// Count implements Store. A group is a state together with a business type. Without a BatchID, Count counts each group
// through the due index, up to AtMost entries of a group. With a BatchID, Count counts up to AtMost entries of the
// whole batch.
func (s *Store) Count(ctx context.Context, tx processlog.Tx, f processlog.CountFilter) ([]processlog.Count, error) {
	if f.AtMost == 0 {
		f.AtMost = defaultAtMost
	}
	if f.AtMost < 0 || f.AtMost > processlog.MaxCount {
		return nil, &processlog.FieldError{Field: "AtMost", Reason: fmt.Sprintf("%d: want 1 to %d, or 0 for %d", f.AtMost, processlog.MaxCount, defaultAtMost)}
	}
	if !utf8.ValidString(f.BatchID + f.BusinessType) {
		return nil, &processlog.FieldError{Field: "filter", Reason: "is not valid UTF-8"}
	}
	count := s.countGroups
	if f.BatchID != "" {
		count = s.countBatch
	}
	counts, err := count(ctx, tx, f)
	if err != nil {
		return nil, fmt.Errorf("compensator: count entries: %w", finished(err))
	}
	return counts, nil
}

// groupsPerCount is how many groups one statement counts. Each group is a part of a UNION. SQLite accepts 500 parts, so
// 200 leaves a margin.
const groupsPerCount = 200

func (s *Store) countGroups(ctx context.Context, tx processlog.Tx, f processlog.CountFilter) ([]processlog.Count, error) {
	var types []string
	if f.BusinessType != "" {
		types = []string{f.BusinessType}
	}
	groups, err := s.groups(ctx, tx, f.States, types)
	if err != nil {
		return nil, err
	}
	var counts []processlog.Count
	for chunk := range slices.Chunk(groups, groupsPerCount) {
		counted, err := s.countChunk(ctx, tx, chunk, f.AtMost)
		if err != nil {
			return nil, err
		}
		counts = append(counts, counted...)
	}
	return counts, nil
}

func (s *Store) countChunk(ctx context.Context, tx processlog.Tx, groups []group, atMost int) ([]processlog.Count, error) {
	rows, err := s.readIn(ctx, tx, s.countQuery(groups, atMost))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var counts []processlog.Count
	for rows.Next() {
		var place, n int
		if err := rows.Scan(&place, &n); err != nil {
			return nil, err
		}
		if n > 0 {
			g := groups[place]
			counts = append(counts, processlog.Count{BusinessType: g.businessType, State: g.state, N: min(n, atMost), More: n > atMost})
		}
	}
	return counts, rows.Err()
}

const countGroup = "SELECT {place} AS place, COUNT(*) AS n FROM (SELECT 1 FROM {log}{by due} WHERE state={state} AND business_type={type} LIMIT {limit}) AS g{place}"

func (s *Store) countQuery(groups []group, atMost int) string {
	parts := make([]string, len(groups))
	for i, g := range groups {
		parts[i] = s.sql(countGroup, "place", strconv.Itoa(i), "state", signed(int64(g.state)), "type", s.d.text(g.businessType), "limit", strconv.Itoa(atMost+1))
	}
	return strings.Join(parts, " UNION ALL ") + everyRow
}

const countBatch = "SELECT state, {text business_type}, COUNT(*) FROM (SELECT state, business_type FROM {log}{by k_batch_id} WHERE batch_id={batch}{and type} LIMIT {limit}) AS batch" +
	" GROUP BY state, business_type ORDER BY state, business_type{every row}"

func (s *Store) countBatch(ctx context.Context, tx processlog.Tx, f processlog.CountFilter) ([]processlog.Count, error) {
	andType := ""
	if f.BusinessType != "" {
		andType = " AND business_type=" + s.d.text(f.BusinessType)
	}
	rows, err := s.readIn(ctx, tx, s.sql(countBatch, "batch", s.d.text(f.BatchID), "and type", andType, "limit", strconv.Itoa(f.AtMost+1)))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var counts []processlog.Count
	total := 0
	for rows.Next() {
		var c processlog.Count
		if err := rows.Scan(&c.State, &c.BusinessType, &c.N); err != nil {
			return nil, err
		}
		total += c.N
		counts = append(counts, c)
	}
	for i := range counts {
		counts[i].More = total > f.AtMost
		counts[i].N = min(counts[i].N, f.AtMost)
	}
	return slices.DeleteFunc(counts, func(c processlog.Count) bool { return len(f.States) > 0 && !slices.Contains(f.States, c.State) }), rows.Err()
}

// group stands for one range of the due index.
type group struct {
	state        processlog.State
	businessType string
}

func (g group) where(s *Store) string {
	return s.sql("state={state} AND business_type={type}", "state", signed(int64(g.state)), "type", s.d.text(g.businessType))
}

// groups returns a group for each pair of a state and a type. Empty states mean all states. If types is nil, groups
// asks the database which pairs exist.
func (s *Store) groups(ctx context.Context, tx processlog.Tx, states []processlog.State, types []string) ([]group, error) {
	if len(states) == 0 {
		states = processlog.States[:]
	}
	states = distinct(states)
	if types == nil {
		return s.occurring(ctx, tx, states)
	}
	groups := make([]group, 0, len(states)*len(types))
	for _, state := range states {
		for _, businessType := range distinct(types) {
			groups = append(groups, group{state, businessType})
		}
	}
	return groups, nil
}

func distinct[T cmp.Ordered](values []T) []T {
	return slices.Compact(slices.Sorted(slices.Values(values)))
}

const occurringGroups = "SELECT state, {text business_type} FROM ({groups}) AS g{every row}"

func (s *Store) occurring(ctx context.Context, tx processlog.Tx, states []processlog.State) ([]group, error) {
	rows, err := s.readIn(ctx, tx, s.sql(occurringGroups, "groups", s.groupsQuery(states)))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var groups []group
	for rows.Next() {
		var g group
		if err := rows.Scan(&g.state, &g.businessType); err != nil {
			return nil, err
		}
		groups = append(groups, g)
	}
	return groups, rows.Err()
}

// MySQL jumps from group to group only if the query also groups by state, even if there is only one state.
const readGroups = "SELECT state, business_type FROM {log}{by due} WHERE state IN ({states}) GROUP BY state, business_type"

func (s *Store) groupsQuery(states []processlog.State) string {
	if s.d.groups != nil {
		return s.d.groups(s.sql("{log}{by due}"), states)
	}
	return s.sql(readGroups, "states", stateList(states))
}
