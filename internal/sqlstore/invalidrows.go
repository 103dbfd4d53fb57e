package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// headDepth is how many entries of each type and state InvalidRows checks for a lease that never ends. InvalidRows
// checks the entries that became due first. An entry with such a lease never runs. Sooner or later the entries due
// before it are done, so it is one of the first.
const headDepth = 100

const (
	wrongState   = "SELECT id, business_type, 'state does not exist' AS why FROM {log}{by due} WHERE state{beyond} LIMIT {limit}"
	wrongNextAt  = "SELECT id, business_type, 'next_at is more than a hundred years away: is it in milliseconds?' AS why FROM {log}{by due} WHERE state={state} AND business_type={type} AND next_at>{now}+{latest} LIMIT {limit}"
	wrongLease   = "SELECT id, business_type, 'lease_until is set, but no process has a lease: leave it at 0' AS why FROM (SELECT id, business_type, lease_until, token FROM {log}{by due} WHERE state={state} AND business_type={type} ORDER BY next_at, id LIMIT {depth}) AS heads WHERE lease_until>{now} AND LENGTH(token)=0"
	invalidParts = "SELECT id, {text business_type}, why FROM ({part}) AS m{number}"
)

func (s *Store) InvalidRows(ctx context.Context, limit int) ([]processlog.InvalidRow, error) {
	most := strconv.Itoa(limit)
	parts := []string{
		s.sql(wrongState, "beyond", fmt.Sprintf("<%d", slices.Min(processlog.States[:])), "limit", most),
		s.sql(wrongState, "beyond", fmt.Sprintf(">%d", slices.Max(processlog.States[:])), "limit", most),
	}
	groups, err := s.groups(ctx, nil, openStates[:], nil)
	if err != nil {
		return nil, fmt.Errorf("compensator: look for invalid rows: %w", err)
	}
	const day = 24 * time.Hour
	latest := signed(processlog.Millis(processlog.MaxDelay + day))
	for _, g := range groups {
		state, businessType := signed(int64(g.state)), s.d.text(g.businessType)
		parts = append(parts, s.sql(wrongNextAt, "state", state, "type", businessType, "latest", latest, "limit", most),
			s.sql(wrongLease, "state", state, "type", businessType, "depth", strconv.Itoa(headDepth)))
	}
	var found []processlog.InvalidRow
	for chunk := range slices.Chunk(parts, rangesPerStatement) {
		if found, err = s.appendInvalidRows(ctx, found, chunk); err != nil {
			return nil, fmt.Errorf("compensator: look for invalid rows: %w", err)
		}
	}
	return found[:min(len(found), limit)], nil
}

func (s *Store) appendInvalidRows(ctx context.Context, found []processlog.InvalidRow, parts []string) ([]processlog.InvalidRow, error) {
	for i, part := range parts {
		parts[i] = s.sql(invalidParts, "part", part, "number", strconv.Itoa(i))
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
