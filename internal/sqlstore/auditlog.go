package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/compensator-go/compensator/processlog"
)

const auditLogRead = 10_000

type auditLogTable struct {
	// These columns differ between the tables, or only one table has them.
	table, join, at, businessType, refused, subject, before, after string
}

func (s *Store) auditLogTables() [2]auditLogTable {
	return [2]auditLogTable{
		{s.sql("{audit}"), s.sql(" LEFT JOIN {log} AS l ON l.id=t.entry_id"), s.d.stampMS("t.created_at"), "COALESCE(l.business_type," + s.d.empty + ")", "0", s.d.empty, "t.before_state", "t.after_state"},
		{s.sql("{operation}"), "", "t.`at`", "t.business_type", "t.refused", "t.subject", "NULL", "NULL"},
	}
}

type auditLogSide struct {
	rows []auditLogRow
	end  uint64 // row number at which the reading stopped; 0: the whole table was read
}

type auditLogRow struct {
	processlog.AuditLogRecord
	row uint64
}

// AuditLog implements Operations. One statement reads both tables, so that both are read at the same moment.
func (s *Store) AuditLog(ctx context.Context, f processlog.AuditLogFilter) (processlog.AuditLogPage, error) {
	limit, err := pageLimit(f.Limit)
	if err != nil {
		return processlog.AuditLogPage{}, err
	}
	q := auditLogQuery{s: s, f: f, limit: limit}
	// q.few limits the rows that one page reads. A filter by entry needs no such limit, because an index finds the
	// records of the entry. A person who may see only some types gets a filter by types. With the limit, the position
	// at which a read stopped would show this person that other types have records.
	q.few = f.EntryID.IsZero() && f.BusinessTypes == nil
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

type auditLogQuery struct {
	s      *Store
	f      processlog.AuditLogFilter
	limit  int
	few    bool      // read at most auditLogRead rows of each table
	before [2]uint64 // position at which the previous page ended, per table; unused on the first page
}

// The column side is 0 for a row of the audit table, and 1 for a row of the operation table. One more row has side 2,
// and contains the newest id of each table. The action of this row is NULL instead of an empty text, because TiDB
// cannot combine a text with a column in ASCII.
const (
	auditLogPage = "{sides}SELECT 2, (SELECT COALESCE(MAX(id),0) FROM {audit}), (SELECT COALESCE(MAX(id),0) FROM {operation}), {empty}, NULL, 0, {empty}, {empty}, 0, {empty}, NULL, NULL"
	auditLogPart = "SELECT * FROM (SELECT {side} AS side, t.id, {at} AS happened, {text t.actor} AS actor, {text t.`action`} AS `action`, t.entry_id, {text t.reason} AS reason," +
		" {business_type} AS business_type, {refused} AS refused, {subject} AS subject, {before} AS was, {after} AS became" +
		" FROM {table} AS t{join} WHERE {where} ORDER BY t.id DESC LIMIT {limit}) AS side{side} UNION ALL "
)

func (q *auditLogQuery) text() string {
	sides := ""
	for i, t := range q.s.auditLogTables() {
		sides += q.s.sql(auditLogPart, "side", strconv.Itoa(i), "at", t.at, "business_type", q.s.d.texts(t.businessType), "refused", t.refused, "subject", q.s.d.texts(t.subject),
			"before", t.before, "after", t.after, "table", t.table, "join", t.join, "where", q.window(i, t.table)+q.narrow(t)+q.withoutEntries(i), "limit", strconv.Itoa(q.limit+1))
	}
	return q.s.sql(auditLogPage, "sides", sides)
}

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

func (q *auditLogQuery) end(before uint64) uint64 {
	if q.few && before > auditLogRead {
		return before - auditLogRead
	}
	return 0
}

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

func (q *auditLogQuery) withoutEntries(side int) string {
	if side != 0 || q.f.EachEntry || !q.f.EntryID.IsZero() {
		return ""
	}
	return fmt.Sprintf(" AND SUBSTR(t.before_state,1,%d)<>%s", len(inBatchPrefix), q.s.d.binary([]byte(inBatchPrefix)))
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
		var action, oldState, newState []byte
		var r auditLogRow
		if err := rows.Scan(&side, &r.row, &at, &r.Actor, &action, &entry, &r.Reason, &r.BusinessType, &r.Refused, &r.Subject, &oldState, &newState); err != nil {
			return sides, err
		}
		if side == len(sides) {
			if q.f.Cursor == "" {
				q.before = [2]uint64{r.row + 1, uint64(at) + 1}
			}
			continue
		}
		r.At, r.Action, r.EntryID = unixMilli(at), string(action), processlog.RowID(entry)
		switch {
		case side == 0 && entry != 0:
			r.changed(oldState, newState)
		case side == 0 && isBatch(oldState):
			r.batch(oldState, newState)
		}
		sides[side].rows = append(sides[side].rows, r)
	}
	for i := range sides {
		sides[i].end = q.end(q.before[i])
		slices.SortFunc(sides[i].rows, func(a, b auditLogRow) int { return cmp.Compare(b.row, a.row) }) // A union has no order.
	}
	return sides, rows.Err()
}

func (r *auditLogRow) changed(oldState, newState []byte) {
	was, err1 := readState(oldState)
	is, err2 := readState(newState)
	if err1 == nil && err2 == nil {
		r.Before, r.After = &was, &is
	}
}

func (r *auditLogRow) batch(mark, data []byte) {
	var bulk storedBulk
	var batch storedBatch
	if json.Unmarshal(mark, &bulk) != nil || json.Unmarshal(data, &batch) != nil {
		return
	}
	id, err := processlog.ParseBulkID(bulk.Bulk)
	if err != nil {
		// The first batch of a bulk stores only the secret of the BulkID. The row number of its record completes the
		// BulkID.
		id = processlog.BulkID{Record: r.row, Secret: bulk.Bulk}
	}
	r.Bulk, r.N, r.Subject = &id, len(batch.Entries), processlog.EntryCount(len(batch.Entries))
}

func mergeAuditLog(sides [2]auditLogSide, limit int) (page processlog.AuditLogPage) {
	var nextAt [2]uint64
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
		case taken[i] < len(s.rows):
			nextAt[i], more = s.rows[taken[i]].row+1, true
		default:
			nextAt[i], more = s.end, more || s.end > 0
		}
	}
	if more {
		page.Next = fmt.Sprintf("%d-%d", nextAt[0], nextAt[1])
	}
	return page
}
