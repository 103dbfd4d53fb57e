package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

// These queries read one index each, and no row.
const (
	matchingRows  = "SELECT id FROM {log}{by index} WHERE {conditions} ORDER BY id LIMIT {limit}"
	matchingCases = "SELECT entry_id FROM {case}{by k_group} WHERE {conditions} ORDER BY entry_id LIMIT {limit}"
)

// MatchingIDs implements Operations.
func (s *Store) MatchingIDs(ctx context.Context, m processlog.Match) ([]processlog.ID, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	m.Filter.Limit, m.Filter.Cursor = 0, ""
	l, err := newListing(s, m.Filter)
	if err != nil {
		return nil, err
	}
	query := l.matching(m)
	if m.Fingerprint != (processlog.Fingerprint{}) {
		query = l.matchingCases(m)
	}
	ids, err := queryIDs(ctx, s.pool(), s.withTimeLimit(ctx, query))
	if err != nil {
		return nil, fmt.Errorf("compensator: find the entries that match: %w", err)
	}
	return ids, nil
}

func (l *listing) matching(m processlog.Match) string {
	index, conditions := l.s.d.dueIndex, l.next()
	switch {
	case l.key != "":
		index, conditions = l.s.d.by("k_"+l.key), []string{l.named()}
	case l.order == orderCreated && slices.ContainsFunc(l.f.States, isCommonEnd):
		index, conditions = l.s.d.by("k_created_at"), l.created()
	default:
		conditions = append(append([]string{"state IN (" + stateList(l.f.States) + ")"}, l.types()...), conditions...)
	}
	return l.s.sql(matchingRows, "by index", index, "conditions", strings.Join(append(conditions, within("id", m)...), " AND "), "limit", strconv.Itoa(m.Limit))
}

func (l *listing) matchingCases(m processlog.Match) string {
	conditions := append([]string{"closed_at=0", "fingerprint=" + l.s.d.binary(m.Fingerprint[:])}, l.types()...)
	return l.s.sql(matchingCases, "conditions", strings.Join(append(conditions, within("entry_id", m)...), " AND "), "limit", strconv.Itoa(m.Limit))
}

func isCommonEnd(state processlog.State) bool { return state.Terminal() && state != processlog.Dead }

func (l *listing) types() (conditions []string) {
	if l.f.BusinessType != "" {
		conditions = append(conditions, "business_type="+l.s.d.text(l.f.BusinessType))
	}
	if l.f.BusinessTypes != nil {
		conditions = append(conditions, "business_type"+l.s.among(l.f.BusinessTypes))
	}
	return conditions
}

func within(column string, m processlog.Match) []string {
	bounds := []string{column + ">" + m.After.String()}
	if !m.UpTo.IsZero() {
		bounds = append(bounds, column+"<="+m.UpTo.String())
	}
	return bounds
}
