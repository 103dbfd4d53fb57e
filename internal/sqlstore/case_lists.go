package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

func (s *Store) queryCases(ctx context.Context, query string) ([]processlog.Case, error) {
	rows, err := s.read(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var cases []processlog.Case
	for rows.Next() {
		var c processlog.Case
		var id uint64
		var print sql.RawBytes
		var opened, dueAt, closed int64
		if err := rows.Scan(&id, &c.Epoch, &c.Version, &c.Kind, &c.BusinessType, &c.BusinessID, &print, &c.EndedBy, &c.Error, &c.Amount.Minor, &c.Amount.Currency, &c.Owner, &opened, &dueAt, &closed); err != nil {
			return nil, err
		}
		c.EntryID, c.OpenedAt, c.DueAt = processlog.RowID(id), unixMilli(opened), unixMilli(dueAt)
		copy(c.Fingerprint[:], print)
		if closed > 0 {
			c.ClosedAt = unixMilli(closed)
		}
		cases = append(cases, c)
	}
	return cases, rows.Err()
}

const casesOf = "SELECT entry_id, epoch, version, kind, {text business_type, business_id}, fingerprint, {text ended_by, error}, COALESCE(amount,0), {text currency, owner}," +
	" opened_at, due_at, closed_at FROM {case} WHERE entry_id IN ({ids})"

// CasesOf implements Operations.
func (s *Store) CasesOf(ctx context.Context, ids []processlog.ID) ([]processlog.Case, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	cases, err := s.queryCases(ctx, s.sql(casesOf, "ids", idList(ids)))
	if err != nil {
		return nil, fmt.Errorf("compensator: read the cases of %d entries: %w", len(ids), err)
	}
	return cases, nil
}

const listCases = "SELECT entry_id, epoch, version, kind, {text business_type, business_id}, fingerprint, {text ended_by, error}, COALESCE(amount,0), {text currency, owner}," +
	" opened_at, due_at, closed_at FROM {case} WHERE closed_at=0{filter} ORDER BY due_at, entry_id LIMIT {limit}"

func (s *Store) Cases(ctx context.Context, f processlog.CaseFilter) (processlog.CasePage, error) {
	limit, err := pageLimit(f.Limit)
	if err != nil {
		return processlog.CasePage{}, err
	}
	where := ""
	if f.Owner != "" || f.Unowned {
		where += " AND owner=" + s.d.text(f.Owner)
	}
	if f.BusinessType != "" {
		where += " AND business_type=" + s.d.text(f.BusinessType)
	}
	if f.BusinessTypes != nil {
		where += " AND business_type" + s.among(f.BusinessTypes)
	}
	if f.Fingerprint != (processlog.Fingerprint{}) {
		where += " AND fingerprint=" + s.d.binary(f.Fingerprint[:])
	}
	if f.Kind != 0 {
		where += " AND kind=" + strconv.Itoa(int(f.Kind))
	}
	if f.Cursor != "" {
		at, id, err := parsePair(f.Cursor)
		if err != nil {
			return processlog.CasePage{}, err
		}
		where += fmt.Sprintf(" AND due_at>=%[1]d AND (due_at>%[1]d OR due_at=%[1]d AND entry_id>%[2]d)", at, id)
	}
	cases, err := s.queryCases(ctx, s.sql(listCases, "filter", where, "limit", strconv.Itoa(limit+1)))
	if err != nil {
		return processlog.CasePage{}, fmt.Errorf("compensator: list cases: %w", err)
	}
	page := processlog.CasePage{Cases: cases}
	if len(cases) > limit {
		page.Cases = cases[:limit]
		last := cases[limit-1]
		page.Next = fmt.Sprintf("%d-%d", last.DueAt.UnixMilli(), last.EntryID.Row())
	}
	return page, nil
}

func parsePair(cursor string) (a, b uint64, err error) {
	first, second, found := strings.Cut(cursor, "-")
	a, err1 := strconv.ParseUint(first, 10, 63)
	b, err2 := strconv.ParseUint(second, 10, 63)
	if !found || err1 != nil || err2 != nil {
		return 0, 0, &processlog.FieldError{Field: "cursor", Reason: fmt.Sprintf("%q is none of this listing", cursor)}
	}
	return a, b, nil
}

const groupCases = "SELECT {text g.business_type}, g.fingerprint, {text g.currency}, g.n, g.total, g.earliest, g.latest, g.example, {text e.error}, e.kind FROM" +
	" (SELECT business_type, fingerprint, currency, COUNT(*) AS n, COALESCE(SUM(amount),0) AS total, MIN(opened_at) AS earliest, MAX(opened_at) AS latest, MAX(entry_id) AS example" +
	" FROM {case}{by k_group} WHERE closed_at=0{filter} GROUP BY business_type, fingerprint, currency ORDER BY 4 DESC, 8 LIMIT {limit}) AS g" +
	" JOIN {case} AS e ON e.entry_id=g.example ORDER BY g.n DESC, g.example"

// CaseGroups implements Operations.
func (s *Store) CaseGroups(ctx context.Context, businessTypes []string, failure processlog.Fingerprint) ([]processlog.CaseGroup, error) {
	of := ""
	if businessTypes != nil {
		of = " AND business_type" + s.among(businessTypes)
	}
	if failure != (processlog.Fingerprint{}) {
		of += " AND fingerprint=" + s.d.binary(failure[:])
	}
	rows, err := s.read(ctx, s.sql(groupCases, "filter", of, "limit", strconv.Itoa(maxPage)))
	if err != nil {
		return nil, fmt.Errorf("compensator: sum up cases: %w", err)
	}
	defer rows.Close()
	var groups []processlog.CaseGroup
	for rows.Next() {
		var g processlog.CaseGroup
		var print sql.RawBytes
		var first, last int64
		var example uint64
		if err := rows.Scan(&g.BusinessType, &print, &g.Currency, &g.N, &g.Sum, &first, &last, &example, &g.Error, &g.Kind); err != nil {
			return nil, fmt.Errorf("compensator: sum up cases: %w", err)
		}
		copy(g.Fingerprint[:], print)
		g.First, g.Last, g.Example = unixMilli(first), unixMilli(last), processlog.RowID(example)
		groups = append(groups, g)
	}
	return groups, rows.Err()
}

const countCases = "SELECT {text business_type}, kind, COUNT(*) FROM {case}{by k_group} WHERE closed_at=0 GROUP BY business_type, kind"

// CountCases implements Operations.
func (s *Store) CountCases(ctx context.Context) (counts []processlog.CaseCount, err error) {
	rows, err := s.read(ctx, s.sql(countCases))
	if err != nil {
		return nil, fmt.Errorf("compensator: count cases: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var c processlog.CaseCount
		if err := rows.Scan(&c.BusinessType, &c.Kind, &c.N); err != nil {
			return nil, fmt.Errorf("compensator: count cases: %w", err)
		}
		counts = append(counts, c)
	}
	return counts, rows.Err()
}
