package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/compensator-go/compensator/processlog"
)

const (
	defaultPage = 50
	maxPage     = 1000
)

func pageLimit(limit int) (int, error) {
	if limit < 0 || limit > maxPage {
		return 0, &processlog.FieldError{Field: "limit", Reason: fmt.Sprintf("%d: want 1 to %d, or 0 for %d", limit, maxPage, defaultPage)}
	}
	if limit == 0 {
		return defaultPage, nil
	}
	return limit, nil
}

// List implements Store. An index supplies the rows in order. So a page reads only its own rows, plus a limited number
// that it compares with the filter. List uses the first of these indexes that fits the filter:
//   - the index of an id, if the filter has a batch id, business id or external business id
//   - the index of created_at, if the filter limits the time at which entries were recorded
//   - the due index, if the filter limits the states or the business types
//   - the primary key
func (s *Store) List(ctx context.Context, f processlog.Filter) (processlog.Page, error) {
	l, err := newListing(s, f)
	if err != nil {
		return processlog.Page{}, err
	}
	read := l.readInOrder
	switch {
	case f.LeasedOfAllTypes():
		read = l.readLeased
	case l.narrowed:
		read = l.readNarrowed
	case l.order == orderDue:
		read = l.readMerged
	}
	page, err := read(ctx)
	if err != nil {
		return processlog.Page{}, fmt.Errorf("compensator: list entries: %w", err)
	}
	if len(page.Rows) == 0 {
		page.Rows = nil
	}
	page.Read = max(page.Read, len(page.Rows))
	return page, nil
}

type listing struct {
	s     *Store
	f     processlog.Filter
	key   string
	order listOrder
	limit int
	after *listPosition // position at which the previous page ended

	narrowed bool
}

func newListing(s *Store, f processlog.Filter) (*listing, error) {
	limit, err := pageLimit(f.Limit)
	if err != nil {
		return nil, err
	}
	l := &listing{s: s, f: f, limit: limit}
	for _, state := range f.States {
		if !slices.Contains(processlog.States[:], state) {
			return nil, &processlog.FieldError{Field: "states", Reason: fmt.Sprintf("%d is not a state", state)}
		}
	}
	if err := l.chooseOrder(); err != nil {
		return nil, err
	}
	if l.narrowed, err = f.Narrowed(); err != nil {
		return nil, err
	}
	if from, to := f.NextRange(); !from.IsZero() || !to.IsZero() || f.Leased {
		l.f.States = f.Reached()
	}
	l.after, err = parseCursor(f.Cursor, l.order, f.Newest)
	return l, err
}

func (l *listing) chooseOrder() error {
	ids := map[string]string{"batch_id": l.f.BatchID, "business_id": l.f.BusinessID, "business_ext_id": l.f.BusinessExtID}
	for column, id := range ids {
		switch {
		case id == "":
		case l.key != "":
			return &processlog.FieldError{Field: "filter", Reason: "want at most one of batch id, business id and external business id"}
		default:
			l.key = column
		}
	}
	if !utf8.ValidString(l.f.BusinessType + ids[l.key]) {
		return &processlog.FieldError{Field: "filter", Reason: "is not valid UTF-8"}
	}
	switch {
	case l.key != "" && l.f.Prefix:
		l.order = orderKey
	case l.key != "":
		l.order = orderID
	case !l.f.CreatedFrom.IsZero() || !l.f.CreatedTo.IsZero():
		l.order = orderCreated
	case len(l.f.States) > 0 || l.f.BusinessType != "" || l.f.BusinessTypes != nil || len(l.f.Reached()) < len(processlog.States):
		l.order = orderDue
	default:
		l.order = orderID
	}
	return nil
}

func (l *listing) readInOrder(ctx context.Context) (processlog.Page, error) {
	rows, err := l.s.queryRows(ctx, l.s.pool(), l.limit+1, l.s.withTimeLimit(ctx, l.inOrder()))
	if err != nil || len(rows) <= l.limit {
		return processlog.Page{Rows: rows}, err
	}
	rows = rows[:l.limit]
	last := rows[l.limit-1]
	return processlog.Page{Rows: rows, Next: l.cursor(listPosition{last.CreatedAt.UnixMilli(), last.ID, l.keyOf(&last)})}, nil
}

func (l *listing) keyOf(row *processlog.Row) string {
	switch l.key {
	case "batch_id":
		return row.BatchID
	case "business_id":
		return row.BusinessID
	}
	return row.BusinessExtID
}

func (l *listing) inOrder() string {
	return l.along(l.columns(), l.limit+1)
}

func (l *listing) columns() string {
	if l.f.Outline {
		return l.s.sql("{outline}")
	}
	return l.s.sql("{columns}")
}

// {reach} is the condition for the part of the index after the cursor.
const listRows = "SELECT {what} FROM {log}{by index} WHERE {reach} ORDER BY {order} LIMIT {limit}"

func (l *listing) along(columns string, n int) string {
	index, order := "", "id"
	switch {
	case l.key != "":
		index = l.s.d.by("k_" + l.key)
		if l.order == orderKey {
			order = l.key + ", id"
		}
	case l.order == orderCreated:
		index, order = l.s.d.by("k_created_at"), "created_at, id"
	case l.order == orderDue:
		index, order = l.s.d.dueIndex, "next_at, id"
	}
	return l.s.sql(listRows, "what", columns, "by index", index, "reach", l.reach(), "order", l.directed(order), "limit", strconv.Itoa(n))
}

func (l *listing) reach() string {
	all := make([]string, 0, 3)
	switch {
	case l.key != "":
		all = append(all, l.named())
	case l.order == orderCreated:
		all = append(all, l.created()...)
	case l.order == orderDue: // Only a listing of one group gets here.
		all = append(all, group{l.f.States[0], l.f.BusinessType}.where(l.s))
		all = append(all, l.next()...)
	}
	switch {
	case l.after == nil:
	case l.order == orderCreated:
		all = append(all, l.beyond("created_at", l.s.stampAt(l.after.at)))
	case l.order == orderDue:
		all = append(all, l.beyond("next_at", fmt.Sprint(l.after.at)))
	case l.order == orderKey:
		all = append(all, l.beyond(l.key, l.s.d.text(l.after.key)))
	default:
		all = append(all, "id"+l.direction()+l.after.id.String())
	}
	if l.f.BusinessTypes != nil {
		all = append(all, "business_type"+l.s.among(l.f.BusinessTypes))
	}
	if len(all) == 0 {
		return "id>0"
	}
	return strings.Join(all, " AND ")
}

func (l *listing) named() string {
	id := l.f.BatchID + l.f.BusinessID + l.f.BusinessExtID // At most one of the three ids is set.
	if l.f.Prefix {
		return l.s.d.prefix(l.key, id)
	}
	return l.key + "=" + l.s.d.text(id)
}

func (l *listing) created() (all []string) {
	if !l.f.CreatedFrom.IsZero() {
		all = append(all, "created_at>="+l.s.stampAt(ceilMilli(l.f.CreatedFrom)))
	}
	if !l.f.CreatedTo.IsZero() {
		all = append(all, "created_at<"+l.s.stampAt(ceilMilli(l.f.CreatedTo)))
	}
	return all
}

func (l *listing) next() (all []string) {
	from, to := l.f.NextRange()
	if !from.IsZero() {
		all = append(all, fmt.Sprintf("next_at>=%d", ceilMilli(from)))
	}
	if !to.IsZero() {
		all = append(all, fmt.Sprintf("next_at<%d", ceilMilli(to)))
	}
	// An entry keeps its due time while it has a lease, so every entry with a lease is due.
	if l.f.Leased {
		all = append(all, l.s.sql("next_at<={now}"))
	}
	return all
}

// beyond returns the condition for the rows behind the last row of the previous page. It does not use a row comparison
// such as (a,b)>(x,y), because MySQL would not use the index for it.
func (l *listing) beyond(column, at string) string {
	d := l.direction()
	return fmt.Sprintf("%[1]s%[2]s=%[3]s AND (%[1]s%[2]s%[3]s OR %[1]s=%[3]s AND id%[2]s%[4]s)", column, d, at, l.after.id)
}

func (l *listing) direction() string {
	if l.f.Newest {
		return "<"
	}
	return ">"
}

func (l *listing) directed(columns string) string {
	if l.f.Newest {
		return strings.ReplaceAll(columns, ",", " DESC,") + " DESC"
	}
	return columns
}

// load leaves out rows that no longer match the filter.
func (l *listing) load(ctx context.Context, positions []listPosition) ([]processlog.Row, error) {
	ids := idsOf(positions)
	load := l.s.Load
	if l.f.Outline {
		load = l.s.Outlines
	}
	loaded, err := load(ctx, ids)
	if err != nil {
		return nil, err
	}
	byID := make(map[processlog.ID]processlog.Row, len(loaded))
	for _, row := range loaded {
		byID[row.ID] = row
	}
	var rows []processlog.Row
	for _, id := range ids {
		if row, found := byID[id]; found && l.f.Admits(&row) {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func idsOf(positions []listPosition) []processlog.ID {
	ids := make([]processlog.ID, len(positions))
	for i, p := range positions {
		ids[i] = p.id
	}
	return ids
}

// stampAt clips a time to the range of created_at.
func (s *Store) stampAt(ms int64) string {
	const lastOf9999 = 253402300799999
	return s.d.stampAt(min(max(ms, 0), lastOf9999))
}

// ceilMilli rounds up, because stored times are whole milliseconds.
func ceilMilli(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return ms
}

// among returns the condition that a column contains one of the texts. Without texts the condition is never true.
func (s *Store) among(texts []string) string {
	if len(texts) == 0 {
		return " IN (NULL)"
	}
	literals := make([]string, len(texts))
	for i, text := range texts {
		literals[i] = s.d.text(text)
	}
	return " IN (" + strings.Join(literals, ",") + ")"
}

func stateList(states []processlog.State) string {
	numbers := make([]string, len(states))
	for i, state := range states {
		numbers[i] = fmt.Sprint(int8(state))
	}
	return strings.Join(numbers, ",")
}
