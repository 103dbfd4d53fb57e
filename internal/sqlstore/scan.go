package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/compensator-go/compensator/processlog"
)

// Each of openStates gets its own query, because the index supplies the order only for one state.
var openStates = [...]processlog.State{processlog.Pending, processlog.Retrying, processlog.Compensating}

const dueRows = "SELECT * FROM (SELECT id, {number next_at}, {number lease_until} AS free, {now} AS asked FROM {log}{by due}" +
	" WHERE state=0 AND business_type={type} AND next_at<={now} AND lease_until<={now} ORDER BY next_at, id LIMIT {limit}) AS s0" +
	" UNION ALL SELECT * FROM (SELECT id, {number next_at}, {number lease_until} AS free, {now} AS asked FROM {log}{by due}" +
	" WHERE state=-1 AND business_type={type} AND next_at<={now} AND lease_until<={now} ORDER BY next_at, id LIMIT {limit}) AS s1" +
	" UNION ALL SELECT * FROM (SELECT id, {number next_at}, {number lease_until} AS free, {now} AS asked FROM {log}{by due}" +
	" WHERE state=-3 AND business_type={type} AND next_at<={now} AND lease_until<={now} ORDER BY next_at, id LIMIT {limit}) AS s2"

// Due implements Store.
func (s *Store) Due(ctx context.Context, businessType string, limit int) ([]processlog.ID, error) {
	due, err := s.scheduled(ctx, s.sql(dueRows, "type", s.d.text(businessType), "limit", strconv.Itoa(limit))+s.wrongClock("0,0,0,0"))
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

// firstOfGroups orders by the whole index. By next_at alone, MySQL would sort the group.
const firstOfGroups = "SELECT g.state, {text g.business_type}, (SELECT {number next_at} FROM {log}{by due}" +
	" WHERE state=g.state AND business_type=g.business_type ORDER BY state, business_type, next_at LIMIT 1), {now} FROM ({groups}) AS g"

// Heads implements Store.
func (s *Store) Heads(ctx context.Context) ([]processlog.Head, error) {
	query := s.sql(firstOfGroups, "groups", s.groupsQuery(openStates[:])) + s.wrongClock("0,"+s.d.empty+",0,0")
	var heads []processlog.Head
	err := s.readLatest(ctx, func(readTx processlog.Tx) error {
		rows, err := readTx.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var h processlog.Head
			var nextAt, now int64
			if err := rows.Scan(&h.State, &h.BusinessType, &nextAt, &now); err != nil {
				return err
			}
			if now == 0 {
				// After errWrongClock, readLatest runs the whole query again in another session. So drop the heads of
				// this session.
				heads = nil
				return errWrongClock
			}
			h.DueIn = remaining(nextAt, now)
			heads = append(heads, h)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("compensator: read the earliest entries: %w", err)
	}
	return heads, nil
}

const (
	scanRows = "SELECT id, {number next_at}, {number lease_until} AS free, {now} AS asked FROM {log}{by due}" +
		" WHERE state={state} AND business_type={type} AND next_at>={from} AND (next_at>{after} OR id>{after id}) AND next_at<{now}+{to} ORDER BY next_at, id LIMIT {limit}"
	scanFreeRows = "SELECT id, {number next_at}, {number lease_until} AS free, {now} AS asked FROM {log}{by due}" +
		" WHERE state={state} AND business_type={type} AND next_at>={from} AND (next_at>{after} OR id>{after id}) AND next_at<{now}+{to} AND lease_until<={now} ORDER BY next_at, id LIMIT {limit}"
)

// Scan implements Store.
func (s *Store) Scan(ctx context.Context, w processlog.Window) ([]processlog.Scheduled, error) {
	statement := scanRows
	if w.Free {
		statement = scanFreeRows
	}
	found, err := s.scheduled(ctx, s.sql(statement, "state", signed(int64(w.State)), "type", s.d.text(w.BusinessType), "from", s.scanFrom(w),
		"after", signed(w.After.NextAt), "after id", w.After.ID.String(), "to", signed(processlog.Millis(w.To)), "limit", strconv.Itoa(w.Limit)))
	if err != nil {
		return nil, fmt.Errorf("compensator: scan %s entries of %q: %w", w.State, w.BusinessType, err)
	}
	return found, nil
}

func (s *Store) scanFrom(w processlog.Window) string {
	if !w.After.ID.IsZero() {
		return fmt.Sprint(w.After.NextAt)
	}
	return fmt.Sprintf("%s+%d", s.d.now, max(processlog.Millis(w.From), -maxLookBack))
}

// maxLookBack limits, in ms, how long ago a Window may begin. Without this limit, the sum of {now} and Window.From
// could exceed the range of a BIGINT.
const maxLookBack = 1 << 50

func (s *Store) scheduled(ctx context.Context, query string) (found []processlog.Scheduled, err error) {
	err = s.readLatest(ctx, func(readTx processlog.Tx) error {
		rows, err := readTx.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		var id uint64
		var nextAt, freeOnly, now int64
		for rows.Next() {
			if err := rows.Scan(&id, &nextAt, &freeOnly, &now); err != nil {
				return err
			}
			if now == 0 {
				// After errWrongClock, readLatest runs the whole query again in another session. So drop the entries
				// of this session.
				found = nil
				return errWrongClock
			}
			found = append(found, processlog.Scheduled{
				ID: processlog.RowID(id), NextAt: nextAt, In: remaining(max(nextAt, freeOnly), now), DueIn: remaining(nextAt, now)})
		}
		return rows.Err()
	})
	return found, err
}
