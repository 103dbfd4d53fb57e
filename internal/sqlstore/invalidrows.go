package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// headDepth is how many of a type's earliest entries InvalidRows checks for leases. An entry that is leased forever is
// among the earliest once the others have run.
const headDepth = 100

// InvalidRows implements InvalidRowFinder. Each part of its query is a short range of the due index.
func (s *Store) InvalidRows(ctx context.Context, limit int) ([]processlog.InvalidRow, error) {
	parts := []string{
		s.invalidRows("state does not exist", fmt.Sprintf("state<%d", slices.Min(processlog.States[:])), limit),
		s.invalidRows("state does not exist", fmt.Sprintf("state>%d", slices.Max(processlog.States[:])), limit),
	}
	groups, err := s.groups(ctx, nil, openStates[:], nil)
	if err != nil {
		return nil, fmt.Errorf("compensator: look for invalid rows: %w", err)
	}
	const day = 24 * time.Hour
	most := processlog.Millis(processlog.MaxDelay + day)
	for _, g := range groups {
		parts = append(parts,
			s.invalidRows("next_at is more than a hundred years away: is it in milliseconds?", fmt.Sprintf("%s AND next_at>%s+%d", g.where(s), s.d.now, most), limit),
			fmt.Sprintf("SELECT id, business_type, 'lease_until is set, but no process has a lease: leave it at 0' AS why FROM (SELECT id, business_type, lease_until, token FROM %s%s WHERE %s ORDER BY next_at, id LIMIT %d) AS heads WHERE lease_until>%s AND LENGTH(token)=0",
				s.table.quoted(""), s.d.dueIndex, g.where(s), headDepth, s.d.now))
	}
	var found []processlog.InvalidRow
	for chunk := range slices.Chunk(parts, rangesPerStatement) {
		if found, err = s.appendInvalidRows(ctx, found, chunk); err != nil {
			return nil, fmt.Errorf("compensator: look for invalid rows: %w", err)
		}
	}
	return found[:min(len(found), limit)], nil
}

func (s *Store) invalidRows(why, where string, limit int) string {
	return fmt.Sprintf("SELECT id, business_type, '%s' AS why FROM %s%s WHERE %s LIMIT %d", why, s.table.quoted(""), s.d.dueIndex, where, limit)
}

func (s *Store) appendInvalidRows(ctx context.Context, found []processlog.InvalidRow, parts []string) ([]processlog.InvalidRow, error) {
	for i, part := range parts {
		parts[i] = fmt.Sprintf("SELECT id, %s, why FROM (%s) AS m%d", s.d.texts("business_type"), part, i)
	}
	rows, err := s.pool().QueryContext(ctx, strings.Join(parts, " UNION ALL "))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var m processlog.InvalidRow
		var id uint64
		if err := rows.Scan(&id, &m.BusinessType, &m.Why); err != nil {
			return nil, err
		}
		m.ID = processlog.RowID(id)
		found = append(found, m)
	}
	return found, rows.Err()
}

var _ processlog.InvalidRowFinder = (*Store)(nil)
