package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

// openStates lists the states in which an entry can be claimed. Each state gets its own query. Only then does the index
// supply the order, so that nothing is sorted.
var openStates = [...]processlog.State{processlog.Pending, processlog.Retrying, processlog.Compensating}

// Due implements Store.
func (s *Store) Due(ctx context.Context, businessType string, limit int) ([]processlog.ID, error) {
	due, err := s.scheduled(ctx, s.eachState(func(state processlog.State) string {
		return s.scanQuery(group{state, businessType}, fmt.Sprintf("next_at<=%s AND lease_until<=%s", s.d.now, s.d.now), limit)
	}))
	if err != nil {
		return nil, fmt.Errorf("compensator: find due entries of %q: %w", businessType, err)
	}
	slices.SortFunc(due, func(a, b processlog.Scheduled) int {
		return cmp.Or(cmp.Compare(a.NextAt, b.NextAt), a.ID.Compare(b.ID))
	})
	ids := make([]processlog.ID, 0, min(limit, len(due)))
	for _, d := range due[:min(limit, len(due))] {
		ids = append(ids, d.ID)
	}
	return ids, nil
}

// Heads implements Store. The query jumps from group to group and reads one row of each. It orders by the whole index.
// If it ordered by next_at alone, MySQL would sort the group.
func (s *Store) Heads(ctx context.Context) ([]processlog.Head, error) {
	query := fmt.Sprintf("SELECT g.state, %s, (SELECT %s FROM %s%s WHERE state=g.state AND business_type=g.business_type ORDER BY state, business_type, next_at LIMIT 1), %s FROM (%s) AS g",
		s.d.texts("g.business_type"), s.d.numbers("next_at"), s.table.quoted(""), s.d.dueIndex, s.d.now, s.groupsQuery(openStates[:]))
	var heads []processlog.Head
	err := s.readLatest(ctx, func(from processlog.Tx) error {
		rows, err := from.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var h processlog.Head
			var next, now int64
			if err := rows.Scan(&h.State, &h.BusinessType, &next, &now); err != nil {
				return err
			}
			h.DueIn = remaining(next, now)
			heads = append(heads, h)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("compensator: read the earliest entries: %w", err)
	}
	return heads, nil
}

// Scan implements Store.
func (s *Store) Scan(ctx context.Context, w processlog.Window) ([]processlog.Scheduled, error) {
	where := fmt.Sprintf("next_at>=%s AND (next_at>%d OR id>%s) AND next_at<%s+%d",
		s.scanFrom(w), w.After.NextAt, w.After.ID, s.d.now, processlog.Millis(w.To))
	if w.Free {
		where += " AND lease_until<=" + s.d.now
	}
	found, err := s.scheduled(ctx, s.scanQuery(group{w.State, w.BusinessType}, where, w.Limit))
	if err != nil {
		return nil, fmt.Errorf("compensator: scan %s entries of %q: %w", w.State, w.BusinessType, err)
	}
	return found, nil
}

// scanFrom returns the lower end of the window. After the first page that is the end of the page before.
func (s *Store) scanFrom(w processlog.Window) string {
	if !w.After.ID.IsZero() {
		return fmt.Sprint(w.After.NextAt)
	}
	return fmt.Sprintf("%s+%d", s.d.now, max(processlog.Millis(w.From), -maxLookBack))
}

// maxLookBack, in ms, keeps now + From far from the limits of BIGINT.
const maxLookBack = 1 << 50

func (s *Store) scanQuery(g group, where string, limit int) string {
	return fmt.Sprintf("SELECT id, %s, %s AS free, %s AS asked FROM %s%s WHERE %s AND %s ORDER BY next_at, id LIMIT %d",
		s.d.numbers("next_at"), s.d.numbers("lease_until"), s.d.now, s.table.quoted(""), s.d.dueIndex, g.where(s), where, limit)
}

// eachState joins one query per open state by UNION ALL.
func (s *Store) eachState(query func(processlog.State) string) string {
	parts := make([]string, len(openStates))
	for i, state := range openStates {
		parts[i] = fmt.Sprintf("SELECT * FROM (%s) AS s%d", query(state), i)
	}
	return strings.Join(parts, " UNION ALL ")
}

func (s *Store) scheduled(ctx context.Context, query string) (found []processlog.Scheduled, err error) {
	err = s.readLatest(ctx, func(from processlog.Tx) error {
		rows, err := from.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var d processlog.Scheduled
			var id uint64
			var free, now int64
			if err := rows.Scan(&id, &d.NextAt, &free, &now); err != nil {
				return err
			}
			d.ID = processlog.RowID(id)
			d.In, d.DueIn = remaining(max(d.NextAt, free), now), remaining(d.NextAt, now)
			found = append(found, d)
		}
		return rows.Err()
	})
	return found, err
}
