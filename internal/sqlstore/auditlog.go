package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/compensator-go/compensator/processlog"
)

// auditLogRead is how many rows of each table one page of the audit log reads if few of them may match the filter.
const auditLogRead = 2000

// auditLogTable describes one of the two tables from which the audit log is merged.
type auditLogTable struct {
	suffix string
	// These are the columns whose names differ, or that only one table has. The type of a purged entry is unknown.
	join, at, businessType, refused, subject, before, after string
}

func (s *Store) auditLogTables() [2]auditLogTable {
	return [2]auditLogTable{
		{"_audit", " LEFT JOIN " + s.table.quoted("") + " AS l ON l.id=t.entry_id", s.d.stampMS("t.created_at"), "COALESCE(l.business_type," + s.d.empty + ")", "0", s.d.empty, "t.before_state", "t.after_state"},
		{"_operation", "", "t.`at`", "t.business_type", "t.refused", "t.subject", "NULL", "NULL"},
	}
}

// auditLogSide is what was read of one table.
type auditLogSide struct {
	rows []auditLogRow
	end  uint64 // first row that was read; 0: the whole table was read
}

// auditLogRow is a record with the id of its row.
type auditLogRow struct {
	processlog.AuditLogRecord
	row uint64
}

// AuditLog implements Operations. It reads both tables in one statement, so that both are read at the same moment.
func (s *Store) AuditLog(ctx context.Context, f processlog.AuditLogFilter) (processlog.AuditLogPage, error) {
	limit, err := pageLimit(f.Limit)
	if err != nil {
		return processlog.AuditLogPage{}, err
	}
	q := auditLogQuery{s: s, f: f, limit: limit}
	// The records of one entry have an index. A reader who may see only some types must not learn where reading stopped
	// among other types.
	q.few = f.EntryID.IsZero() && f.BusinessTypes == nil && (f.Actor != "" || f.Action != "" || !f.From.IsZero() || !f.To.IsZero())
	if f.Cursor != "" {
		if q.before[0], q.before[1], err = parsePair(f.Cursor); err != nil {
			return processlog.AuditLogPage{}, err
		}
	}
	sides, err := q.read(ctx)
	if err != nil {
		return processlog.AuditLogPage{}, fmt.Errorf("compensator: read the audit log: %w", err)
	}
	return mergeAuditLog(sides, limit), nil
}

// auditLogQuery is the state of one AuditLog call.
type auditLogQuery struct {
	s      *Store
	f      processlog.AuditLogFilter
	limit  int
	few    bool      // read at most auditLogRead rows of each table
	before [2]uint64 // end of the page before, per table; unused on the first page
}

// text returns the query for the newest matching rows of both tables. One extra row, with side 2, holds the newest id
// of each table.
func (q *auditLogQuery) text() string {
	query, newest, text := "", "", q.s.d.texts
	for i, t := range q.s.auditLogTables() {
		table := q.s.table.quoted(t.suffix)
		query += fmt.Sprintf("SELECT * FROM (SELECT %d AS side, t.id, %s AS happened, %s AS actor, %s AS `action`, t.entry_id, %s AS reason, %s AS business_type, %s AS refused, %s AS subject, %s AS was, %s AS became"+
			" FROM %s AS t%s WHERE %s%s ORDER BY t.id DESC LIMIT %d) AS side%d UNION ALL ",
			i, t.at, text("t.actor"), text("t.`action`"), text("t.reason"), text(t.businessType), t.refused, text(t.subject), t.before, t.after, table, t.join, q.window(i, table), q.narrow(t), q.limit+1, i)
		newest += fmt.Sprintf("(SELECT COALESCE(MAX(id),0) FROM %s), ", table)
	}
	// The action is NULL because TiDB cannot combine a text with a column in ASCII: their collations differ.
	return query + "SELECT 2, " + newest + fmt.Sprintf("%[1]s, NULL, 0, %[1]s, %[1]s, 0, %[1]s, NULL, NULL", q.s.d.empty)
}

// window returns the condition for the rows of a table that this page reads.
func (q *auditLogQuery) window(side int, table string) string {
	switch first := q.f.Cursor == ""; {
	case first && q.few:
		return fmt.Sprintf("t.id>(SELECT CASE WHEN MAX(id)>%[1]d THEN MAX(id)-%[1]d ELSE 0 END FROM %[2]s)", auditLogRead, table)
	case first:
		return "t.id>0"
	default:
		return fmt.Sprintf("t.id<%d AND t.id>=%d", q.before[side], q.end(q.before[side]))
	}
}

// end returns the first row to read, for a page that ends before the given row.
func (q *auditLogQuery) end(before uint64) uint64 {
	if q.few && before > auditLogRead {
		return before - auditLogRead
	}
	return 0
}

// narrow returns the filter's conditions for a table.
func (q *auditLogQuery) narrow(t auditLogTable) (where string) {
	text := q.s.d.text
	if q.f.BusinessTypes != nil {
		where += " AND " + t.businessType + q.s.among(q.f.BusinessTypes)
	}
	if !q.f.EntryID.IsZero() {
		where += " AND t.entry_id=" + q.f.EntryID.String()
	}
	if q.f.Actor != "" {
		where += " AND t.actor=" + text(q.f.Actor)
	}
	if q.f.Action != "" {
		where += " AND t.`action`=" + text(q.f.Action)
	}
	if !q.f.From.IsZero() {
		where += fmt.Sprintf(" AND %s>=%d", t.at, ceilMilli(q.f.From))
	}
	if !q.f.To.IsZero() {
		where += fmt.Sprintf(" AND %s<%d", t.at, ceilMilli(q.f.To))
	}
	return where
}

func (q *auditLogQuery) read(ctx context.Context) (sides [2]auditLogSide, err error) {
	rows, err := q.s.read(ctx, q.text())
	if err != nil {
		return sides, err
	}
	defer rows.Close()
	for rows.Next() {
		var side int
		var at int64
		var entry uint64
		var action, before, after []byte
		var r auditLogRow
		if err := rows.Scan(&side, &r.row, &at, &r.Actor, &action, &entry, &r.Reason, &r.BusinessType, &r.Refused, &r.Subject, &before, &after); err != nil {
			return sides, err
		}
		if side == len(sides) {
			if q.f.Cursor == "" {
				q.before = [2]uint64{r.row + 1, uint64(at) + 1}
			}
			continue
		}
		r.At, r.Action, r.EntryID = unixMilli(at), string(action), processlog.RowID(entry)
		if side == 0 && entry != 0 {
			r.changed(before, after)
		}
		sides[side].rows = append(sides[side].rows, r)
	}
	for i := range sides {
		sides[i].end = q.end(q.before[i])
		slices.SortFunc(sides[i].rows, func(a, b auditLogRow) int { return cmp.Compare(b.row, a.row) }) // A union need not keep the order.
	}
	return sides, rows.Err()
}

// changed fills in Before and After if both can be decoded.
func (r *auditLogRow) changed(before, after []byte) {
	was, err1 := readState(before)
	is, err2 := readState(after)
	if err1 == nil && err2 == nil {
		r.Before, r.After = &was, &is
	}
}

// mergeAuditLog makes a page of the newest rows of both tables.
func mergeAuditLog(sides [2]auditLogSide, limit int) (page processlog.AuditLogPage) {
	var next [2]uint64
	more := false
	taken := [2]int{}
	for len(page.Records) < limit {
		side := -1
		for i := range sides {
			if taken[i] < len(sides[i].rows) && (side < 0 || sides[i].rows[taken[i]].At.After(sides[side].rows[taken[side]].At)) {
				side = i
			}
		}
		if side < 0 {
			break
		}
		page.Records = append(page.Records, sides[side].rows[taken[side]].AuditLogRecord)
		taken[side]++
	}
	for i, s := range sides {
		switch {
		case taken[i] < len(s.rows): // The next page starts with the next row of this table.
			next[i], more = s.rows[taken[i]].row+1, true
		default:
			next[i], more = s.end, more || s.end > 0
		}
	}
	if more {
		page.Next = fmt.Sprintf("%d-%d", next[0], next[1])
	}
	return page
}
