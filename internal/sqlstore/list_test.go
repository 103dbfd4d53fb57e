package sqlstore

import (
	"cmp"
	"database/sql"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

type listedRow struct {
	id       uint64
	kind     string
	state    processlog.State
	batch    string
	business string
	external string
	next     int64 // ms since 1970
	created  int64
	ended    processlog.EndedBy
	err      string
	user     string
}

const listedFrom = int64(1_700_000_000_000) // created_at of the first row, in ms since 1970

// Some rows share their due time or their creation time.
func listedRows(n int) []listedRow {
	rows := make([]listedRow, n)
	for i := range rows {
		rows[i] = listedRow{
			id: uint64(i + 1), kind: fmt.Sprintf("type %d", i%4), state: processlog.States[i/4%len(processlog.States)],
			batch: fmt.Sprintf("b%d", i%9), business: fmt.Sprintf("o%d", i%50), external: fmt.Sprintf("x%d", i%40),
			next: listedFrom + int64(i*37%n/5), created: listedFrom + int64(i/3),
			ended: []processlog.EndedBy{"", processlog.EndedByCrash, processlog.EndedByExhausted}[i/7%3], user: fmt.Sprintf("u%d", i%3),
			err: []string{"", "sold out", "100% of _ 'gone'\\", "Sold Out", "退款 100x of a 'gone'"}[i/5%5],
		}
	}
	return rows
}

// The pool has one connection, because the tests read the statistics of a connection.
func newListStore(t *testing.T, rows []listedRow) *Store {
	ctx := t.Context()
	db, err := sql.Open("mysql", testservers.Database(t))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	db.SetMaxOpenConns(1)
	require.NoError(t, Migrate(ctx, db, DefaultTable))
	s, err := Open(ctx, db, DefaultTable)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	require.NoError(t, s.Check(ctx))
	for chunk := range slices.Chunk(rows, 1000) {
		values := make([]string, len(chunk))
		for i, r := range chunk {
			values[i] = fmt.Sprintf("(%d,'key %d','%s',%d,'%s','%s','%s','{}',%d,%s,%s,'%s',%s,'%s')",
				r.id, r.id, r.kind, r.state, r.batch, r.business, r.external, r.next, s.d.stampAt(r.created), s.d.stampAt(r.created), r.ended, s.d.text(r.err), r.user)
		}
		_, err := db.ExecContext(ctx, "INSERT INTO `common_process_log` (id, idempotent_id, business_type, state, batch_id, business_id, business_ext_id, content, next_at, created_at, updated_at, ended_by, last_error, user_id) VALUES "+strings.Join(values, ","))
		require.NoError(t, err)
	}
	_, err = db.ExecContext(ctx, "ANALYZE TABLE `common_process_log`")
	require.NoError(t, err)
	return s
}

var listFilters = []struct {
	name   string
	filter processlog.Filter
	key    string // the index that the listing must use
}{
	{"nothing", processlog.Filter{}, "PRIMARY"},
	{"batch", processlog.Filter{BatchID: "b3"}, "k_batch_id"},
	{"batch and state", processlog.Filter{BatchID: "b3", States: []processlog.State{processlog.Dead}}, "k_batch_id"},
	{"batch, type and created", processlog.Filter{BatchID: "b3", BusinessType: "type 1", CreatedFrom: unixMilli(listedFrom + 40)}, "k_batch_id"},
	{"business id", processlog.Filter{BusinessID: "o7"}, "k_business_id"},
	{"external business id", processlog.Filter{BusinessExtID: "x7"}, "k_business_ext_id"},
	{"state and type", processlog.Filter{States: []processlog.State{processlog.Dead}, BusinessType: "type 1"}, "k_due"},
	{"state", processlog.Filter{States: []processlog.State{processlog.Pending}}, "k_due"},
	{"states, one twice", processlog.Filter{States: []processlog.State{processlog.Succeeded, processlog.Pending, processlog.Succeeded}}, "k_due"},
	{"type", processlog.Filter{BusinessType: "type 2"}, "k_due"},
	{"created from", processlog.Filter{CreatedFrom: unixMilli(listedFrom + 50)}, "k_created_at"},
	{"created to", processlog.Filter{CreatedTo: unixMilli(listedFrom + 50)}, "k_created_at"},
	{"created within, and states", processlog.Filter{CreatedFrom: unixMilli(listedFrom + 10), CreatedTo: unixMilli(listedFrom + 90), States: []processlog.State{processlog.Dead, processlog.Pending}}, "k_created_at"},
	{"created between milliseconds", processlog.Filter{CreatedFrom: unixMilli(listedFrom).Add(time.Microsecond), CreatedTo: unixMilli(listedFrom + 20).Add(time.Nanosecond)}, "k_created_at"},
	{"another type", processlog.Filter{BusinessType: "none"}, "k_due"},
	{"another batch", processlog.Filter{BatchID: "none"}, "k_batch_id"},
	{"error of a state and type", narrow(processlog.Filter{LastError: "old out"}), "k_due"},
	{"error in other letters", narrow(processlog.Filter{LastError: "OLD"}), "k_due"},
	{"error of pattern signs", narrow(processlog.Filter{LastError: "100% of _"}), "k_due"},
	{"error of quotes", narrow(processlog.Filter{LastError: "'gone'\\"}), "k_due"},
	{"error of characters", narrow(processlog.Filter{LastError: "款"}), "k_due"},
	{"nobody's error", narrow(processlog.Filter{LastError: "%" + "%"}), "k_due"},
	{"end of a state and type", narrow(processlog.Filter{EndedBy: processlog.EndedByCrash}), "k_due"},
	{"user of a state and type", narrow(processlog.Filter{UserID: "u1"}), "k_due"},
	{"all three", narrow(processlog.Filter{LastError: "o", EndedBy: processlog.EndedByExhausted, UserID: "u2"}), "k_due"},
	{"error of a batch", processlog.Filter{BatchID: "b3", LastError: "100"}, "k_batch_id"},
	{"two types", processlog.Filter{BusinessTypes: two}, "k_due"},
	{"two types in a state", processlog.Filter{BusinessTypes: two, States: []processlog.State{processlog.Dead}}, "k_due"},
	{"two types of a business id", processlog.Filter{BusinessTypes: two, BusinessID: "o7"}, "k_business_id"},
	{"two types of a batch, in a state", processlog.Filter{BusinessTypes: two, BatchID: "b3", States: []processlog.State{processlog.Dead}}, "k_batch_id"},
	{"two types within a range", processlog.Filter{BusinessTypes: two, CreatedFrom: unixMilli(listedFrom + 10), CreatedTo: unixMilli(listedFrom + 90)}, "k_created_at"},
	{"error of one of two types", processlog.Filter{BusinessTypes: two, BusinessType: "type 1", States: []processlog.State{processlog.Dead}, LastError: "old out"}, "k_due"},
	{"begin of a batch", processlog.Filter{BatchID: "b", Prefix: true}, "k_batch_id"},
	{"begin of a business id", processlog.Filter{BusinessID: "o1", Prefix: true}, "k_business_id"},
	{"begin of a business id of two types", processlog.Filter{BusinessID: "o1", Prefix: true, BusinessTypes: two}, "k_business_id"},
	{"begin of a business id in a state", processlog.Filter{BusinessID: "o", Prefix: true, States: []processlog.State{processlog.Dead}}, "k_business_id"},
	{"begin of an external id and a user", processlog.Filter{BusinessExtID: "x1", Prefix: true, UserID: "u1"}, "k_business_ext_id"},
	{"a wildcard", processlog.Filter{BusinessID: "o_", Prefix: true}, "k_business_id"},
	{"another wildcard", processlog.Filter{BusinessID: "%", Prefix: true}, "k_business_id"},
	{"begin in other letters", processlog.Filter{BusinessID: "O1", Prefix: true}, "k_business_id"},
	{"user of a type", processlog.Filter{BusinessType: "type 1", UserID: "u1"}, "k_due"},
	{"error of a type in two states", processlog.Filter{BusinessType: "type 1", States: []processlog.State{processlog.Dead, processlog.Pending}, LastError: "old"}, "k_due"},
	{"ended within", processlog.Filter{EndedFrom: unixMilli(listedFrom + 20), EndedTo: unixMilli(listedFrom + 60)}, "k_due"},
	{"ended since, of a type", processlog.Filter{EndedFrom: unixMilli(listedFrom + 20), BusinessType: "type 1"}, "k_due"},
	{"dead since", processlog.Filter{EndedFrom: unixMilli(listedFrom + 20), States: []processlog.State{processlog.Dead}}, "k_due"},
	{"dead of a type within, by user", processlog.Filter{EndedFrom: unixMilli(listedFrom + 20), EndedTo: unixMilli(listedFrom + 70), BusinessType: "type 1", UserID: "u2"}, "k_due"},
	{"running of a type", processlog.Filter{BusinessType: "type 1", Leased: true}, "k_due"},
	{"running of a type in a process", processlog.Filter{BusinessType: "type 1", Leased: true, LeasedBy: processlog.InstanceID{1}}, "k_due"},
	{"due before", processlog.Filter{DueTo: unixMilli(listedFrom + 60)}, "k_due"},
	{"due within, of two types", processlog.Filter{DueFrom: unixMilli(listedFrom + 10), DueTo: unixMilli(listedFrom + 60), BusinessTypes: two}, "k_due"},
	{"ended within, recorded within", processlog.Filter{EndedFrom: unixMilli(listedFrom + 20), CreatedFrom: unixMilli(listedFrom + 10)}, "k_created_at"},
	{"due within, of a batch", processlog.Filter{DueFrom: unixMilli(listedFrom + 20), BatchID: "b3"}, "k_batch_id"},
	{"error within a range", processlog.Filter{CreatedFrom: unixMilli(listedFrom + 10), CreatedTo: unixMilli(listedFrom + 90), LastError: "100"}, "k_created_at"},
}

var two = []string{"type 1", "type 3", "type 9"}

func narrow(f processlog.Filter) processlog.Filter {
	f.States, f.BusinessType = []processlog.State{processlog.Dead}, "type 1"
	return f
}

func admits(f processlog.Filter, r listedRow) bool {
	created := unixMilli(r.created)
	return !f.Leased && (len(f.States) == 0 || slices.Contains(f.States, r.state)) &&
		(f.BusinessType == "" || f.BusinessType == r.kind) &&
		(len(f.BusinessTypes) == 0 || slices.Contains(f.BusinessTypes, r.kind)) &&
		isWanted(f, f.BatchID, r.batch) && isWanted(f, f.BusinessID, r.business) && isWanted(f, f.BusinessExtID, r.external) &&
		(f.EndedFrom.IsZero() && f.EndedTo.IsZero() || r.state.Terminal() && isWithin(unixMilli(r.next), f.EndedFrom, f.EndedTo)) &&
		(f.DueFrom.IsZero() && f.DueTo.IsZero() || !r.state.Terminal() && isWithin(unixMilli(r.next), f.DueFrom, f.DueTo)) &&
		(f.CreatedFrom.IsZero() || !created.Before(f.CreatedFrom)) &&
		(f.CreatedTo.IsZero() || created.Before(f.CreatedTo)) &&
		strings.Contains(r.err, f.LastError) && (f.EndedBy == "" || f.EndedBy == r.ended) && (f.UserID == "" || f.UserID == r.user)
}

func sign(wanted string) int { return min(len(wanted), 1) }

func isWanted(f processlog.Filter, wanted, id string) bool {
	return wanted == "" || wanted == id || f.Prefix && strings.HasPrefix(id, wanted)
}

func isWithin(at, from, to time.Time) bool {
	return (from.IsZero() || !at.Before(from)) && (to.IsZero() || at.Before(to))
}

func listed(rows []listedRow, f processlog.Filter, key string) []uint64 {
	var found []listedRow
	for _, r := range rows {
		if admits(f, r) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b listedRow) int {
		order := cmp.Compare(a.id, b.id)
		switch key {
		case "k_batch_id", "k_business_id", "k_business_ext_id":
			if f.Prefix {
				order = cmp.Or(cmp.Compare(a.batch, b.batch)*sign(f.BatchID), cmp.Compare(a.business, b.business)*sign(f.BusinessID), cmp.Compare(a.external, b.external)*sign(f.BusinessExtID), order)
			}
		case "k_due":
			order = cmp.Or(cmp.Compare(a.next, b.next), order)
		case "k_created_at":
			order = cmp.Or(cmp.Compare(a.created, b.created), order)
		}
		if f.Newest {
			return -order
		}
		return order
	})
	ids := make([]uint64, len(found))
	for i, r := range found {
		ids[i] = r.id
	}
	return ids
}

func TestListPagesHoldEveryEntryOnceAndInOrder(t *testing.T) {
	rows := listedRows(400)
	s := newListStore(t, rows)
	for _, tc := range listFilters {
		for _, newest := range []bool{false, true} {
			for _, limit := range []int{0, 7, maxPage} {
				f := tc.filter
				f.Newest, f.Limit = newest, limit
				want := listed(rows, f, tc.key)
				var got []uint64
				for len(got) <= len(want) {
					page, err := s.List(t.Context(), f)
					require.NoError(t, err, "%s, newest %v, limit %d", tc.name, newest, limit)
					for _, e := range page.Rows {
						got = append(got, e.ID.Row())
					}
					if f.Cursor = page.Next; f.Cursor == "" {
						break
					}
					require.Len(t, page.Rows, cmp.Or(limit, defaultPage), "a page before the last is full")
				}
				require.ElementsMatch(t, want, got, "%s, newest %v, limit %d", tc.name, newest, limit)
				require.Equal(t, want, append([]uint64{}, got...), "%s, newest %v, limit %d", tc.name, newest, limit)
			}
		}
	}
}

func TestListPageCostsWhatItHoldsWhereverItIs(t *testing.T) {
	const limit = 20
	rows := listedRows(6000)
	s := newListStore(t, rows)
	for _, tc := range listFilters {
		for _, newest := range []bool{false, true} {
			f := tc.filter
			f.Newest, f.Limit = newest, limit
			drops, err := f.Narrowed()
			require.NoError(t, err)
			for page := 0; page < 4; page++ {
				cost := s.cost(t, func() {
					found, err := s.List(t.Context(), f)
					require.NoError(t, err)
					f.Cursor = found.Next
				})
				sorted := 0
				if tc.key == "k_due" && !drops { // With many ranges, the server reads the first rows of every range once, and the rows of the page twice.
					sorted = 2 * (limit + 1)
				}
				if tc.key == "k_due" && drops && len(f.Reached()) > 1 { // Each statement sorts the next positions of every state.
					sorted = len(f.Reached()) * len(rows) / 4 // rows of one type
				}
				assert.LessOrEqual(t, cost.sorted, sorted, "%s, newest %v, page %d: rows sorted", tc.name, newest, page)
				// The server counts a row twice: when it reads one of the 32 ranges, and when it reads the union of the
				// ranges.
				if !drops {
					assert.Less(t, cost.read, 32*(limit+2)*2+300, "%s, newest %v, page %d: rows read", tc.name, newest, page)
				}
				if f.Cursor == "" {
					break
				}
			}
		}
	}
}

func TestListPageInTheMiddleOfAHerdCostsAsMuch(t *testing.T) {
	rows := make([]listedRow, 3000) // All rows are due and were recorded in the same millisecond.
	for i := range rows {
		rows[i] = listedRow{id: uint64(i + 1), kind: "t", state: processlog.Pending, next: listedFrom, created: listedFrom}
	}
	s := newListStore(t, rows)
	for _, f := range []processlog.Filter{{BusinessType: "t"}, {CreatedFrom: unixMilli(listedFrom)}} {
		for _, f.Newest = range []bool{false, true} {
			f.Limit, f.Cursor = maxPage, ""
			page, err := s.List(t.Context(), f)
			require.NoError(t, err)
			f.Limit, f.Cursor = 10, page.Next
			cost := s.cost(t, func() {
				page, err = s.List(t.Context(), f)
				require.NoError(t, err)
			})
			want := uint64(maxPage + 1)
			if f.Newest {
				want = uint64(len(rows) - maxPage)
			}
			assert.Equal(t, processlog.RowID(want), page.Rows[0].ID)
			assert.Less(t, cost.read, 200, "%+v", f)
		}
	}
}

// The backlog of one paused type must neither hide the running entries of the other types nor be read as a whole.
func TestRunningEntriesOfAllTypesCostAShareOfEachType(t *testing.T) {
	const types, backlog = 40, 20_000
	var rows []listedRow
	for i := range backlog {
		rows = append(rows, listedRow{id: uint64(i + 1), kind: "paused", next: listedFrom, created: listedFrom})
	}
	for i := range 3 * types {
		rows = append(rows, listedRow{id: uint64(backlog + i + 1), kind: fmt.Sprintf("type %d", i%types), state: processlog.States[i%3], next: listedFrom + int64(i), created: listedFrom})
	}
	s := newListStore(t, rows)
	running, err := s.db.ExecContext(t.Context(), "UPDATE common_process_log SET lease_until=9000000000000, token=REPEAT('a', 16) WHERE business_type<>'paused' AND state IN (-3,-1)")
	require.NoError(t, err)
	want, err := running.RowsAffected()
	require.NoError(t, err)
	require.EqualValues(t, 2*types, want)
	f := processlog.Filter{Leased: true, Outline: true, Limit: maxPage}
	for i := range types {
		f.BusinessTypes = append(f.BusinessTypes, fmt.Sprintf("type %d", i))
	}
	f.BusinessTypes = append(f.BusinessTypes, "paused")
	groups := 3 * len(f.BusinessTypes)
	for _, f.BusinessTypes = range [][]string{f.BusinessTypes, nil} {
		statements := s.selects(t)
		cost := s.cost(t, func() {
			page, err := s.List(t.Context(), f)
			require.NoError(t, err)
			assert.Len(t, page.Rows, int(want))
			assert.Equal(t, []string{"paused"}, page.Partial)
			assert.LessOrEqual(t, page.Read, processlog.DefaultRead)
		})
		most := 1 + (groups+rangesPerStatement-1)/rangesPerStatement // The first statement reads the rows.
		if f.BusinessTypes == nil {
			most++ // to find the groups
		}
		assert.LessOrEqual(t, s.selects(t)-statements, most)
		assert.Less(t, cost.read, 3*processlog.DefaultRead, "the server reads each compared row, its place in the index, and the row of the derived table")
	}
}

// selects returns the number of SELECT statements of the session so far.
func (s *Store) selects(t *testing.T) (n int) {
	var name string
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Com_select'").Scan(&name, &n))
	return n
}

type readCost struct{ read, sorted int }

func (s *Store) cost(t *testing.T, work func()) readCost {
	before := s.counters(t)
	work()
	after := s.counters(t)
	return readCost{after.read - before.read, after.sorted - before.sorted}
}

func (s *Store) counters(t *testing.T) (c readCost) {
	rows, err := s.db.QueryContext(t.Context(), "SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler_read%' OR Variable_name = 'Sort_rows'")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		var n int
		require.NoError(t, rows.Scan(&name, &n))
		if name == "Sort_rows" {
			c.sorted = n
			continue
		}
		c.read += n
	}
	require.NoError(t, rows.Err())
	return c
}

func (s *Store) plan(t *testing.T, query string) (steps []string) {
	rows, err := s.db.QueryContext(t.Context(), "EXPLAIN FORMAT=TRADITIONAL "+query)
	require.NoError(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		require.NoError(t, rows.Scan(into...))
		step := make(map[string]string, len(columns))
		for i, column := range columns {
			step[strings.ToLower(column)] = values[i].String
		}
		// Only the table of the log must be read without a sort. The server may sort the union of many ranges, because
		// the union has few rows.
		if step["table"] == s.table.base {
			assert.NotContains(t, step["extra"], "filesort", query)
			steps = append(steps, step["key"]+": "+step["extra"])
		}
	}
	require.NoError(t, rows.Err())
	require.NotEmpty(t, steps, query)
	return steps
}

// Failure: F29
func TestListIsPlannedAlongAnIndex(t *testing.T) {
	s := newListStore(t, listedRows(6000))
	for _, tc := range listFilters {
		for _, after := range []*listPosition{nil, {at: listedFrom + 15, id: processlog.RowID(46)}} {
			f := tc.filter
			f.Newest = after == nil
			l, err := newListing(s, f)
			require.NoError(t, err)
			if l.after = after; after != nil && f.Prefix {
				l.after = &listPosition{id: after.id, key: f.BatchID + f.BusinessID + f.BusinessExtID + "4"}
			}
			query := l.inOrder
			if l.narrowed {
				query = func() string { return l.lookQuery(readStep) }
			} else if l.order == orderDue {
				groups, err := l.groups(t.Context())
				require.NoError(t, err)
				query = func() string { return l.merged(groups, nil) }
				steps := s.plan(t, l.foremost(groups, nil))
				assert.Contains(t, steps, "PRIMARY: ", "%s: the rows are looked up", tc.name)
				assert.Len(t, steps, len(groups)+1, tc.name)
			}
			for _, step := range s.plan(t, query()) {
				assert.True(t, strings.HasPrefix(step, tc.key+":"), "%s: got %q, want %s", tc.name, step, tc.key)
			}
		}
	}
}

func TestGroupsAreFoundByJumping(t *testing.T) {
	s := newListStore(t, listedRows(6000))
	for _, states := range [][]processlog.State{{processlog.Pending}, {processlog.Pending, processlog.Dead}, processlog.States[:]} {
		assert.Contains(t, s.plan(t, s.groupsQuery(states))[0], "Using index for group-by")
		cost := s.cost(t, func() {
			groups, err := s.groups(t.Context(), nil, states, nil)
			require.NoError(t, err)
			want := 0
			for _, state := range states {
				for kind := range 4 {
					assert.Contains(t, groups, group{state, fmt.Sprintf("type %d", kind)})
					want++
				}
			}
			assert.Len(t, groups, want)
		})
		assert.Less(t, cost.read, 30*len(states))
	}
}

func TestListOfAnEmptyLogIsOneEmptyPage(t *testing.T) {
	s := newListStore(t, nil)
	for _, tc := range listFilters {
		page, err := s.List(t.Context(), tc.filter)
		require.NoError(t, err, tc.name)
		assert.Equal(t, processlog.Page{}, page, tc.name)
	}
	counts, err := s.Count(t.Context(), nil, processlog.CountFilter{})
	require.NoError(t, err)
	assert.Empty(t, counts)
	purged, err := s.Purge(t.Context(), "", processlog.Succeeded, 0, 100)
	require.NoError(t, err)
	assert.Zero(t, purged)
	history, err := s.History(t.Context(), processlog.RowID(1))
	require.NoError(t, err)
	assert.Empty(t, history)
}

func TestListRefusesWhatItCannotServe(t *testing.T) {
	s := newListStore(t, listedRows(40))
	first, err := s.List(t.Context(), processlog.Filter{Limit: 5})
	require.NoError(t, err)
	require.NotEmpty(t, first.Next)
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for field, filters := range map[string][]processlog.Filter{
		"limit":  {{Limit: -1}, {Limit: maxPage + 1}},
		"states": {{States: []processlog.State{processlog.Dead, 77}}},
		"filter": {{BatchID: "b1", BusinessID: "o1"}, {BusinessID: "o1", BusinessExtID: "x1"}, {BusinessType: "\xff"}, {BatchID: "\xff"}},
		"cursor": {
			{Cursor: "garbage"}, {Cursor: "%%%"}, {Cursor: encode("1.id>.0")}, {Cursor: encode("1.id>.0.0")}, {Cursor: encode("1.id>.x.1")},
			{Cursor: encode("2.id>.0.1")}, {Cursor: first.Next + "A"},
			{Cursor: first.Next, Newest: true}, {Cursor: first.Next, States: []processlog.State{processlog.Dead}}, {Cursor: first.Next, CreatedTo: unixMilli(listedFrom)},
		},
	} {
		for _, f := range filters {
			_, err := s.List(t.Context(), f)
			var refused *processlog.FieldError
			if assert.ErrorAs(t, err, &refused, "%+v", f) {
				assert.Equal(t, field, refused.Field, "%+v", f)
			}
		}
	}
	_, err = s.Count(t.Context(), nil, processlog.CountFilter{AtMost: -1})
	assert.ErrorAs(t, err, new(*processlog.FieldError))
}

func TestListTakesTimesNoColumnCanHold(t *testing.T) {
	s := newListStore(t, listedRows(10))
	all, err := s.List(t.Context(), processlog.Filter{CreatedFrom: time.Unix(-1<<40, 0), CreatedTo: time.Unix(1<<40, 0)})
	require.NoError(t, err)
	assert.Len(t, all.Rows, 10)
	page, err := s.List(t.Context(), processlog.Filter{CreatedTo: time.Unix(1, 0), Cursor: base64.RawURLEncoding.EncodeToString([]byte("1.created>.9223372036854775807.1"))})
	require.NoError(t, err)
	assert.Empty(t, page.Rows)
}

func TestListFindsTypesAndIdsOfAnySpelling(t *testing.T) {
	s := newListStore(t, nil)
	names := []string{`it's`, `back\slash`, "sécurité 退款 🎉", `"; DROP TABLE x; --`, "A", "a", "ß", "ss"}
	tx, err := s.Begin(t.Context())
	require.NoError(t, err)
	for i, name := range names {
		_, err := s.Insert(t.Context(), tx, []processlog.Draft{{BusinessType: name, IdempotencyKey: processlog.IdempotencyKey(fmt.Sprint(i)), BatchID: name, BusinessID: name, BusinessExtID: name}}, false)
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
	for _, name := range names {
		for _, f := range []processlog.Filter{{BusinessType: name}, {BatchID: name}, {BusinessID: name}, {BusinessExtID: name}} {
			page, err := s.List(t.Context(), f)
			require.NoError(t, err)
			if assert.Len(t, page.Rows, 1, "%+v", f) {
				assert.Equal(t, name, page.Rows[0].BusinessType)
			}
		}
	}
	counts, err := s.Count(t.Context(), nil, processlog.CountFilter{})
	require.NoError(t, err)
	assert.Len(t, counts, len(names))
}

func TestListMergesMoreGroupsThanOneStatementHolds(t *testing.T) {
	rows := make([]listedRow, 2*rangesPerStatement+30)
	for i := range rows {
		rows[i] = listedRow{id: uint64(i + 1), kind: fmt.Sprintf("type %03d", i*7%len(rows)), state: processlog.Dead, next: listedFrom + int64(i*31%97), created: listedFrom}
	}
	s := newListStore(t, rows)
	for _, newest := range []bool{false, true} {
		f := processlog.Filter{States: []processlog.State{processlog.Dead}, Newest: newest, Limit: 60}
		var got []uint64
		for more := true; more; more = f.Cursor != "" {
			page, err := s.List(t.Context(), f)
			require.NoError(t, err)
			for _, e := range page.Rows {
				got = append(got, e.ID.Row())
			}
			f.Cursor = page.Next
		}
		assert.Equal(t, listed(rows, f, "k_due"), got, "newest %v", newest)
	}
	counts, err := s.Count(t.Context(), nil, processlog.CountFilter{})
	require.NoError(t, err)
	assert.Len(t, counts, len(rows))
}

func TestCountStopsAtMost(t *testing.T) {
	rows := listedRows(6000) // 32 groups of 187 or 188 rows
	s := newListStore(t, rows)
	want := make(map[group]int)
	for _, r := range rows {
		want[group{r.state, r.kind}]++
	}
	for _, atMost := range []int{0, 10, 187} {
		var counts []processlog.Count
		cost := s.cost(t, func() {
			var err error
			counts, err = s.Count(t.Context(), nil, processlog.CountFilter{AtMost: atMost})
			require.NoError(t, err)
		})
		require.Len(t, counts, len(want))
		most := cmp.Or(atMost, defaultAtMost)
		for _, c := range counts {
			all := want[group{c.State, c.BusinessType}]
			assert.Equal(t, processlog.Count{BusinessType: c.BusinessType, State: c.State, N: min(all, most), More: all > most}, c)
		}
		if atMost == 10 {
			assert.Less(t, cost.read, 32*2*12+400)
		}
	}
	s.plan(t, s.countQuery([]group{{processlog.Pending, "type 0"}, {processlog.Dead, "type 1"}}, 10))
	one, err := s.Count(t.Context(), nil, processlog.CountFilter{BusinessType: "type 1"})
	require.NoError(t, err)
	for _, c := range one {
		assert.Equal(t, "type 1", c.BusinessType)
	}
}

func TestCountOfABatchGroupsItsEntries(t *testing.T) {
	rows := listedRows(400)
	s := newListStore(t, rows)
	want := make(map[group]int)
	total := 0
	for _, r := range rows {
		if r.batch == "b3" {
			want[group{r.state, r.kind}]++
			total++
		}
	}
	counts, err := s.Count(t.Context(), nil, processlog.CountFilter{BatchID: "b3", AtMost: total})
	require.NoError(t, err)
	require.Len(t, counts, len(want))
	for _, c := range counts {
		assert.Equal(t, processlog.Count{BusinessType: c.BusinessType, State: c.State, N: want[group{c.State, c.BusinessType}]}, c)
	}
	counts, err = s.Count(t.Context(), nil, processlog.CountFilter{BatchID: "b3", AtMost: total - 1})
	require.NoError(t, err)
	for _, c := range counts {
		assert.True(t, c.More)
		assert.LessOrEqual(t, c.N, want[group{c.State, c.BusinessType}])
	}
	typed, err := s.Count(t.Context(), nil, processlog.CountFilter{BatchID: "b3", BusinessType: "type 1"})
	require.NoError(t, err)
	for _, c := range typed {
		assert.Equal(t, "type 1", c.BusinessType)
		assert.Equal(t, want[group{c.State, c.BusinessType}], c.N)
	}
}

func TestPurgeDeletesOnlyWhatIsOldAndTerminal(t *testing.T) {
	rows := listedRows(400)
	s := newListStore(t, rows)
	ctx := t.Context()
	_, err := s.db.ExecContext(ctx, "UPDATE `common_process_log` SET next_at="+s.d.now+"-60000 WHERE id%2=0 AND state=1")
	require.NoError(t, err)
	old, want := 0, make(map[processlog.State]int)
	for _, r := range rows {
		if r.state == processlog.Succeeded && r.id%2 != 0 {
			old++
			continue
		}
		want[r.state]++
	}
	purged, err := s.Purge(ctx, "", processlog.Succeeded, time.Hour, 10)
	require.NoError(t, err)
	assert.Equal(t, 10, purged)
	purged, err = s.Purge(ctx, "", processlog.Succeeded, time.Hour, 1000)
	require.NoError(t, err)
	assert.Equal(t, old-10, purged)
	left, err := s.Count(ctx, nil, processlog.CountFilter{})
	require.NoError(t, err)
	got := make(map[processlog.State]int)
	for _, c := range left {
		got[c.State] += c.N
	}
	assert.Equal(t, want, got)
	for _, state := range []processlog.State{processlog.Pending, processlog.Retrying, processlog.Compensating, 77} {
		_, err := s.Purge(ctx, "", state, 0, 10)
		assert.ErrorAs(t, err, new(*processlog.FieldError), "%v", state)
	}
	_, err = s.Purge(ctx, "", processlog.Dead, -time.Second, 10)
	assert.ErrorAs(t, err, new(*processlog.FieldError))
}

func TestPurgePassesByWhatSomebodyHolds(t *testing.T) {
	s := newListStore(t, []listedRow{
		{id: 1, kind: "t", state: processlog.Dead, next: listedFrom, created: listedFrom},
		{id: 2, kind: "t", state: processlog.Dead, next: listedFrom, created: listedFrom},
	})
	s.db.SetMaxOpenConns(0)
	person, err := s.Begin(t.Context())
	require.NoError(t, err)
	_, err = s.Change(t.Context(), person, true, processlog.Change{Ref: processlog.RowID(1), Action: processlog.ActionRequeue, Actor: "ann", Reason: "the bank is back"})
	require.NoError(t, err)
	purged, err := s.Purge(t.Context(), "", processlog.Dead, time.Hour, 10)
	require.NoError(t, err)
	assert.Equal(t, 1, purged)
	require.NoError(t, person.Commit())
	row, err := s.Resolve(t.Context(), processlog.RowID(1))
	require.NoError(t, err)
	assert.Equal(t, processlog.Pending, row.State)
}

func TestPurgeSparesWhatHasMovedOnSinceItWasFound(t *testing.T) {
	ctx := t.Context()
	s := newListStore(t, []listedRow{
		{id: 1, kind: "t", state: processlog.Dead, next: listedFrom, created: listedFrom},
		{id: 2, kind: "t", state: processlog.Dead, next: listedFrom, created: listedFrom},
	})
	p := purge{s: s, group: group{processlog.Dead, "t"}, age: "0"}
	found, err := p.oldest(ctx, endedEntry{}, 10)
	require.NoError(t, err)
	require.Len(t, found, 2)
	_, err = s.Change(ctx, nil, false, processlog.Change{Ref: processlog.RowID(1), Action: processlog.ActionSettleManually, Actor: "ann", Reason: "paid in cash"})
	require.NoError(t, err)
	require.NoError(t, p.deleteEntries(ctx, found))
	assert.Equal(t, 1, p.purged)
	row, err := s.Resolve(ctx, processlog.RowID(1))
	require.NoError(t, err)
	assert.Equal(t, processlog.SettledManually, row.State)
}

func TestHistoryTellsWhatPeopleDid(t *testing.T) {
	s := newListStore(t, []listedRow{{id: 1, kind: "t", state: processlog.Dead, next: listedFrom, created: listedFrom}})
	ctx := t.Context()
	_, err := s.db.ExecContext(ctx, "UPDATE `common_process_log` SET last_error='no money', process_count=5 WHERE id=1")
	require.NoError(t, err)
	_, err = s.Change(ctx, nil, false, processlog.Change{Ref: processlog.RowID(1), Action: processlog.ActionRequeue, Actor: "ann", Reason: "the bank is back"})
	require.NoError(t, err)
	_, err = s.Change(ctx, nil, false, processlog.Change{Ref: processlog.IdempotencyKey("key 1"), Action: processlog.ActionCancel})
	require.NoError(t, err)
	rolledBack, err := s.Begin(ctx)
	require.NoError(t, err)
	_, err = s.Change(ctx, rolledBack, false, processlog.Change{Ref: processlog.RowID(1), Action: processlog.ActionRequeue, Actor: "bob", Reason: "never mind"})
	require.NoError(t, err)
	require.NoError(t, rolledBack.Rollback())

	history, err := s.History(ctx, processlog.RowID(1))
	require.NoError(t, err)
	require.Len(t, history, 1, "a service's cancel is no action of a person, and a rollback undoes one")
	assert.WithinDuration(t, time.Now(), history[0].At, time.Minute)
	assert.Equal(t, time.UTC, history[0].At.Location())
	assert.Less(t, history[0].Ago.Abs(), time.Minute)
	history[0].At, history[0].Ago = time.Time{}, 0
	assert.Equal(t, processlog.AuditRecord{EntryID: processlog.RowID(1), Action: processlog.ActionRequeue, Actor: "ann", Reason: "the bank is back",
		Before: processlog.AuditState{State: processlog.Dead, ProcessCount: 5, LastError: "no money"},
		After:  processlog.AuditState{State: processlog.Pending, Version: 1, Epoch: 1, LastError: "no money"}}, history[0])
}

func TestPageLooksAtNoMoreRowsThanItMayAndTheNextGoesOnThere(t *testing.T) {
	rows := make([]listedRow, 3500) // One state and type. The wanted row comes last.
	for i := range rows {
		rows[i] = listedRow{id: uint64(i + 1), kind: "t", state: processlog.Dead, next: listedFrom + int64(i/100), created: listedFrom, err: "down"}
	}
	rows[len(rows)-1].err = "sold out"
	s := newListStore(t, rows)
	for _, newest := range []bool{false, true} {
		f := processlog.Filter{States: []processlog.State{processlog.Dead}, BusinessType: "t", LastError: "sold", MaxRead: 1500, Newest: newest}
		readCount, pages := 0, 0
		var found []uint64
		for {
			var page processlog.Page
			cost := s.cost(t, func() {
				var err error
				page, err = s.List(t.Context(), f)
				require.NoError(t, err)
			})
			assert.LessOrEqual(t, page.Read, 1500)
			assert.Less(t, cost.read, 1500+200)
			assert.Zero(t, cost.sorted)
			for _, row := range page.Rows {
				found = append(found, row.ID.Row())
			}
			readCount, pages = readCount+page.Read, pages+1
			if f.Cursor = page.Next; f.Cursor == "" {
				break
			}
		}
		assert.Equal(t, []uint64{3500}, found)
		assert.Equal(t, []int{3500, 3}, []int{readCount, pages}, "every row was looked at once")
	}
}

func TestFilterThatWouldReadTheTableIsRefused(t *testing.T) {
	s := newListStore(t, nil)
	dead := []processlog.State{processlog.Dead}
	for _, f := range []processlog.Filter{
		{LastError: "x"}, {UserID: "u"}, {EndedBy: processlog.EndedByCrash}, {LastError: "x", States: dead}, {LastError: "x", BusinessTypes: []string{"t"}},
		{Leased: true, States: dead}, {Leased: true, BusinessType: "t", States: dead}, {LeasedBy: processlog.NewInstanceID(), BusinessType: "t"},
		{Prefix: true}, {Prefix: true, BusinessType: "t"}, {EndedFrom: unixMilli(1), States: []processlog.State{processlog.Pending}}, {DueTo: unixMilli(1), States: dead}, {EndedTo: unixMilli(1), DueTo: unixMilli(2)},
		{EndedBy: "nobody", BusinessType: "t", States: dead}, {LastError: "\xff", BusinessType: "t", States: dead}, {MaxRead: -1}, {MaxRead: 100_001},
	} {
		_, err := s.List(t.Context(), f)
		assert.ErrorAs(t, err, new(*processlog.FieldError), "%+v", f)
	}
	_, err := s.List(t.Context(), processlog.Filter{LastError: "x", BusinessType: "t", States: []processlog.State{processlog.Dead, processlog.Dead}})
	assert.NoError(t, err, "one state, said twice")
}
