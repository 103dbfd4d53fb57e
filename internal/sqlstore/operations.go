package sqlstore

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

// Outlines implements Operations.
func (s *Store) Outlines(ctx context.Context, ids []processlog.ID) ([]processlog.Row, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := s.queryRows(ctx, s.pool(), len(ids), s.ended(ctx, "SELECT "+s.outline()+" FROM "+s.table.quoted("")+" WHERE id IN ("+idList(ids)+")"))
	if err != nil {
		return nil, fmt.Errorf("compensator: read %d entries: %w", len(ids), err)
	}
	return rows, nil
}

// outline is columns without the content: a thousand of those may be more than memory holds.
func (s *Store) outline() string {
	return strings.Replace(s.columns(), " content,", " '' AS content,", 1)
}

// Operate implements Operations.
func (s *Store) Operate(ctx context.Context, op processlog.Operation) error {
	if err := s.operate(ctx, s.pool(), op); err != nil {
		return s.dropReadOnly(err)
	}
	return nil
}

func (s *Store) operate(ctx context.Context, tx processlog.Tx, op processlog.Operation) error {
	refused := 0
	if op.Refused {
		refused = 1
	}
	text := func(v string) string { return s.d.text([]byte(v)) }
	_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (`at`, actor, `action`, refused, entry_id, business_type, subject, reason) VALUES (%s,%s,%s,%d,%s,%s,%s,%s)",
		s.table.quoted("_operation"), s.d.now, text(op.Actor), text(op.Action), refused, op.EntryID, text(op.BusinessType), text(op.Subject), text(op.Reason)))
	if err != nil {
		return fmt.Errorf("compensator: record that somebody did %q: %w", op.Action, err)
	}
	failpoint.Reach(failpoint.OperationWritten)
	return nil
}

// trailRead is how many rows of each table a page of the trail looks at.
const trailRead = 10_000

// typesRead is how many of the newest operations tell of types that the log has no entry of any more.
const typesRead = 1000

// trailRow is a record and the row it stands in.
type trailRow struct {
	processlog.TrailRecord
	row uint64
}

// trailTable is one of the two tables that a trail is merged of.
type trailTable struct {
	suffix string
	before uint64 // where the page before has ended; of no meaning on the first
	read   trailReader
}

// trailReader reads the newest rows of a table, within a window of row numbers.
type trailReader func(ctx context.Context, f processlog.TrailFilter, window string, limit int) ([]trailRow, error)

// trailSide is what was read of one of them.
type trailSide struct {
	rows []trailRow
	end  uint64 // what stands before it was not looked at; 0: nothing
}

// Trail implements Operations.
func (s *Store) Trail(ctx context.Context, f processlog.TrailFilter) (processlog.TrailPage, error) {
	limit, err := pageLimit(f.Limit)
	if err != nil {
		return processlog.TrailPage{}, err
	}
	tables := [2]trailTable{{suffix: "_audit", read: s.changesDone}, {suffix: "_operation", read: s.operationsDone}}
	if f.Cursor != "" {
		if tables[0].before, tables[1].before, err = parsePair(f.Cursor); err != nil {
			return processlog.TrailPage{}, err
		}
	}
	var sides [2]trailSide
	for i, table := range tables {
		if sides[i], err = s.trailSide(ctx, f, table, limit); err != nil {
			return processlog.TrailPage{}, fmt.Errorf("compensator: read the trail: %w", err)
		}
	}
	return mergeTrail(sides, limit), nil
}

// trailSide reads one table's rows, newest first. Where few of them may be wanted, it looks at so many and no more.
func (s *Store) trailSide(ctx context.Context, f processlog.TrailFilter, table trailTable, limit int) (side trailSide, err error) {
	// An entry's have an index. Who may see some types is not told where reading stops among others.
	few := f.EntryID.IsZero() && f.BusinessTypes == nil && (f.Actor != "" || f.Action != "" || !f.From.IsZero() || !f.To.IsZero())
	before := table.before
	switch {
	case f.Cursor != "":
	case few:
		if before, err = s.newestIn(ctx, table.suffix); err != nil {
			return side, err
		}
		before++
	default:
		before = math.MaxInt64
	}
	from := uint64(0)
	if few && before > trailRead {
		from = before - trailRead
	}
	side.end = from
	side.rows, err = table.read(ctx, f, fmt.Sprintf("t.id<%d AND t.id>=%d", before, from), limit+1)
	return side, err
}

func (s *Store) newestIn(ctx context.Context, table string) (uint64, error) {
	ids, err := queryIDs(ctx, s.pool(), "SELECT COALESCE(MAX(id),0) FROM "+s.table.quoted(table))
	if err != nil {
		return 0, err
	}
	return ids[0].Row(), nil
}

// mergeTrail makes a page of the newest of both.
func mergeTrail(sides [2]trailSide, limit int) (page processlog.TrailPage) {
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
		page.Records = append(page.Records, sides[side].rows[taken[side]].TrailRecord)
		taken[side]++
	}
	for i, s := range sides {
		switch {
		case taken[i] < len(s.rows): // its next comes first on the next page
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

// narrow is what of a filter both tables are asked for.
func (s *Store) narrow(f processlog.TrailFilter, at, businessType string) string {
	where := ""
	if f.BusinessTypes != nil {
		where += " AND " + businessType + s.among(f.BusinessTypes)
	}
	if !f.EntryID.IsZero() {
		where += " AND t.entry_id=" + f.EntryID.String()
	}
	if f.Actor != "" {
		where += " AND t.actor=" + s.d.text([]byte(f.Actor))
	}
	if f.Action != "" {
		where += " AND t.`action`=" + s.d.text([]byte(f.Action))
	}
	if !f.From.IsZero() {
		where += fmt.Sprintf(" AND %s>=%d", at, ceilMilli(f.From))
	}
	if !f.To.IsZero() {
		where += fmt.Sprintf(" AND %s<%d", at, ceilMilli(f.To))
	}
	return where
}

// changesDone reads the audit table. Of what was done to an entry that was purged nobody knows the type.
func (s *Store) changesDone(ctx context.Context, f processlog.TrailFilter, window string, limit int) ([]trailRow, error) {
	at, businessType := s.d.stampMS("t.created_at"), "COALESCE(l.business_type,'')"
	rows, err := s.read(ctx, "SELECT t.id, "+at+", t.actor, t.`action`, t.entry_id, t.reason, t.before_state, t.after_state, "+businessType+" FROM "+
		s.table.quoted("_audit")+" AS t LEFT JOIN "+s.table.quoted("")+" AS l ON l.id=t.entry_id WHERE "+window+s.narrow(f, at, businessType)+" ORDER BY t.id DESC LIMIT "+strconv.Itoa(limit))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []trailRow
	for rows.Next() {
		var r trailRow
		var at int64
		var entry uint64
		var before, after []byte
		if err := rows.Scan(&r.row, &at, &r.Actor, &r.Action, &entry, &r.Reason, &before, &after, &r.BusinessType); err != nil {
			return nil, err
		}
		r.At, r.EntryID = unixMilli(at), processlog.RowID(entry)
		if entry != 0 {
			was, err1 := readState(before)
			is, err2 := readState(after)
			if err1 == nil && err2 == nil {
				r.Before, r.After = &was, &is
			}
		}
		found = append(found, r)
	}
	return found, rows.Err()
}

func (s *Store) operationsDone(ctx context.Context, f processlog.TrailFilter, window string, limit int) ([]trailRow, error) {
	rows, err := s.read(ctx, "SELECT t.id, t.`at`, t.actor, t.`action`, t.refused, t.entry_id, t.business_type, t.subject, t.reason FROM "+
		s.table.quoted("_operation")+" AS t WHERE "+window+s.narrow(f, "t.`at`", "t.business_type")+" ORDER BY t.id DESC LIMIT "+strconv.Itoa(limit))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []trailRow
	for rows.Next() {
		var r trailRow
		var at int64
		var entry uint64
		if err := rows.Scan(&r.row, &at, &r.Actor, &r.Action, &r.Refused, &entry, &r.BusinessType, &r.Subject, &r.Reason); err != nil {
			return nil, err
		}
		r.At, r.EntryID = unixMilli(at), processlog.RowID(entry)
		found = append(found, r)
	}
	return found, rows.Err()
}

// Types implements Operations.
func (s *Store) Types(ctx context.Context) ([]string, error) {
	rows, err := s.read(ctx, fmt.Sprintf("SELECT business_type FROM (%s) AS g UNION SELECT business_type FROM (SELECT business_type FROM %s ORDER BY id DESC LIMIT %d) AS newest WHERE business_type<>'' ORDER BY 1",
		s.groupsQuery(processlog.States[:]), s.table.quoted("_operation"), typesRead))
	if err != nil {
		return nil, fmt.Errorf("compensator: find the types: %w", err)
	}
	defer rows.Close()
	var types []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("compensator: find the types: %w", err)
		}
		types = append(types, name)
	}
	return types, rows.Err()
}

// Settings implements Operations.
func (s *Store) Settings(ctx context.Context) ([]processlog.Setting, error) {
	rows, err := s.pool().QueryContext(ctx, "SELECT name, value, version, actor, reason, `at` FROM "+s.table.quoted("_setting")+" ORDER BY name")
	if err != nil {
		return nil, fmt.Errorf("compensator: read the settings: %w", err)
	}
	defer rows.Close()
	var settings []processlog.Setting
	for rows.Next() {
		var v processlog.Setting
		var at int64
		if err := rows.Scan(&v.Name, &v.Value, &v.Version, &v.Actor, &v.Reason, &at); err != nil {
			return nil, fmt.Errorf("compensator: read the settings: %w", err)
		}
		v.At = unixMilli(at)
		settings = append(settings, v)
	}
	return settings, rows.Err()
}

// PutSetting implements Operations.
func (s *Store) PutSetting(ctx context.Context, v processlog.Setting, op processlog.Operation) error {
	text := func(v string) string { return s.d.text([]byte(v)) }
	query := fmt.Sprintf("UPDATE %s SET value=%s, version=version+1, actor=%s, reason=%s, `at`=%s WHERE name=%s AND version=%d",
		s.table.quoted("_setting"), text(v.Value), text(v.Actor), text(v.Reason), s.d.now, text(v.Name), v.Version)
	if v.Version == 0 {
		query = fmt.Sprintf("INSERT INTO %s (name, value, version, actor, reason, `at`) VALUES (%s,%s,1,%s,%s,%s)",
			s.table.quoted("_setting"), text(v.Name), text(v.Value), text(v.Actor), text(v.Reason), s.d.now)
	}
	err := s.untilFree(ctx, changeTimeout, s.inOwn, func(tx processlog.Transaction) error {
		if err := s.operate(ctx, tx, op); err != nil {
			return err
		}
		n, err := execCount(ctx, tx, query)
		if s.d.fault(err) == faultDuplicate || err == nil && n == 0 {
			return processlog.ErrChanged
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("compensator: set %q: %w", v.Name, err)
	}
	return err
}
