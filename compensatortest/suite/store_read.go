package suite

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

func (t *storeTest) dueListsWhatCouldBeClaimed() {
	first, second, leased := t.insertOne("due"), t.insertOne("due"), t.insertOne("due")
	t.insertOne("another")
	later := t.draft("due")
	later.Delay = time.Hour
	t.insert(later)
	t.claim(leased.ID, token(1), time.Minute)
	due, err := t.Store.Due(t.ctx, "due", 10)
	require.NoError(t, err)
	assert.Equal(t, []processlog.ID{first.ID, second.ID}, due)
	due, err = t.Store.Due(t.ctx, "due", 1)
	require.NoError(t, err)
	assert.Equal(t, []processlog.ID{first.ID}, due)
	due, err = t.Store.Due(t.ctx, "nobody", 10)
	require.NoError(t, err)
	assert.Empty(t, due)
}

func (t *storeTest) headsTellTheEarliestOfEachStateAndType() {
	for i, delay := range []time.Duration{2 * time.Hour, time.Hour} {
		d := t.draft(fmt.Sprintf("type-%d", i))
		e := t.draft(d.BusinessType)
		d.Delay, e.Delay = delay, delay+time.Hour
		t.insert(d, e)
	}
	t.inState(processlog.Retrying)
	t.inState(processlog.Succeeded)
	heads, err := t.Store.Heads(t.ctx)
	require.NoError(t, err)
	got := make(map[string]time.Duration)
	for _, h := range heads {
		got[h.BusinessType+" "+h.State.String()] = h.DueIn
	}
	require.Len(t, got, 3, "%v", got)
	assert.InDelta(t, 2*time.Hour, got["type-0 pending"], float64(time.Minute))
	assert.InDelta(t, time.Hour, got["type-1 pending"], float64(time.Minute))
	assert.LessOrEqual(t, got["states retrying"], time.Second)
}

func (t *storeTest) scanPagesThroughAWindow() {
	var rows []processlog.Row
	for i := range 10 {
		d := t.draft("scan")
		d.Delay = time.Duration(i/2) * time.Minute
		rows = append(rows, t.insert(d)[0])
	}
	window := processlog.Window{BusinessType: "scan", State: processlog.Pending, From: 30 * time.Second, To: 210 * time.Second, Limit: 2}
	var ids []processlog.ID
	for {
		page, err := t.Store.Scan(t.ctx, window)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		for _, s := range page {
			ids = append(ids, s.ID)
			assert.LessOrEqual(t, s.In, 210*time.Second)
		}
		window.After = page[len(page)-1]
	}
	var want []processlog.ID
	for _, row := range rows[2:8] {
		want = append(want, row.ID)
	}
	assert.Equal(t, want, ids)
	t.claim(rows[0].ID, token(1), time.Minute)
	everything := processlog.Window{BusinessType: "scan", State: processlog.Pending, From: -time.Hour, To: time.Second, Limit: 100}
	page, err := t.Store.Scan(t.ctx, everything)
	require.NoError(t, err)
	require.Len(t, page, 2)
	assert.Greater(t, page[0].In, 30*time.Second, "a leased entry is scheduled for the end of its lease")
	assert.Less(t, page[0].DueIn, page[0].In, "the entry's due time is earlier")
	later, err := t.Store.Scan(t.ctx, processlog.Window{BusinessType: "scan", State: processlog.Pending, From: 30 * time.Second, To: 90 * time.Second, Limit: 1})
	require.NoError(t, err)
	assert.InDelta(t, time.Minute, later[0].DueIn, float64(30*time.Second))
	everything.Free = true
	page, err = t.Store.Scan(t.ctx, everything)
	require.NoError(t, err)
	require.Len(t, page, 1)
	assert.Equal(t, rows[1].ID, page[0].ID)
}

func (t *storeTest) pages(filter processlog.Filter) (keys []processlog.IdempotencyKey) {
	t.Helper()
	filter.Limit = 2
	for range 100 {
		page, err := t.Store.List(t.ctx, filter)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Rows), 2)
		for _, e := range page.Rows {
			keys = append(keys, e.IdempotencyKey)
		}
		if page.Next == "" {
			return keys
		}
		filter.Cursor = page.Next
	}
	require.Fail(t, "the listing never ends")
	return nil
}

func (t *storeTest) leasedEntriesAreListedByTheirProcess() {
	a, b := processlog.NewInstanceID(), processlog.NewInstanceID()
	claim := func(row processlog.Row, by processlog.InstanceID) processlog.Row {
		return t.claim(row.ID, processlog.NewToken().Mark(by), time.Hour)
	}
	var keys []processlog.IdempotencyKey
	for _, state := range []processlog.State{processlog.Pending, processlog.Retrying, processlog.Compensating} {
		keys = append(keys, claim(t.inState(state), a).IdempotencyKey)
	}
	other := claim(t.insertOne("states"), b)
	t.settle(other.Token, outcome(other, processlog.Succeeded))
	last := claim(t.insertOne("states"), b)
	t.insertOne("states")
	claim(t.insertOne("another"), a)
	filter := processlog.Filter{BusinessType: "states", Leased: true}
	for _, filter.Outline = range []bool{false, true} {
		filter.LeasedBy = processlog.InstanceID{}
		assert.ElementsMatch(t, append([]processlog.IdempotencyKey{last.IdempotencyKey}, keys...), t.pages(filter))
		filter.LeasedBy = a
		assert.ElementsMatch(t, keys, t.pages(filter))
		filter.LeasedBy = b
		assert.Equal(t, []processlog.IdempotencyKey{last.IdempotencyKey}, t.pages(filter))
		filter.LeasedBy = processlog.NewInstanceID()
		assert.Empty(t, t.pages(filter))
	}
	filter.LeasedBy, filter.States = a, []processlog.State{processlog.Retrying}
	assert.Equal(t, keys[1:2], t.pages(filter))
	for _, wrong := range []processlog.Filter{{Leased: true, UserID: "u"}, {Leased: true, LastError: "e"}, {Leased: true, Cursor: "MS5kdWU-LjAuMQ"}, {BusinessType: "states", LeasedBy: a}, {BusinessType: "states", Leased: true, States: []processlog.State{processlog.Dead}}} {
		_, err := t.Store.List(t.ctx, wrong)
		require.ErrorAs(t, err, new(*processlog.FieldError), "%+v", wrong)
	}
}

func (t *storeTest) leasedEntriesOfAllTypesAreOnOnePage() {
	process := processlog.NewInstanceID()
	held := make(map[string][]processlog.IdempotencyKey)
	for _, name := range []string{"a", "b", "b", "c"} {
		row := t.claim(t.insertOne(name).ID, processlog.NewToken().Mark(process), time.Hour)
		held[name] = append(held[name], row.IdempotencyKey)
	}
	for range 9 {
		t.insertOne("paused")
		t.insertOne("c") // These entries are due, and no process holds them.
	}
	list := func(filter processlog.Filter) (keys []processlog.IdempotencyKey, page processlog.Page) {
		filter.Leased, filter.Outline = true, true
		page, err := t.Store.List(t.ctx, filter)
		require.NoError(t, err)
		require.Empty(t, page.Next, "%+v", filter)
		for _, row := range page.Rows {
			keys = append(keys, row.IdempotencyKey)
		}
		return keys, page
	}
	all := slices.Concat(held["a"], held["b"], held["c"])
	for _, filter := range []processlog.Filter{{}, {LeasedBy: process}, {States: []processlog.State{processlog.Pending}}, {BusinessTypes: []string{"c", "a", "paused", "b", "none"}}} {
		keys, page := list(filter)
		assert.ElementsMatch(t, all, keys, "%+v", filter)
		assert.Empty(t, page.Partial, "%+v", filter)
	}
	keys, _ := list(processlog.Filter{BusinessTypes: []string{"b", "paused"}})
	assert.ElementsMatch(t, held["b"], keys)
	for _, filter := range []processlog.Filter{{LeasedBy: processlog.NewInstanceID()}, {BusinessTypes: []string{}}, {States: []processlog.State{processlog.Retrying}}} {
		keys, _ := list(filter)
		assert.Empty(t, keys, "%+v", filter)
	}
	keys, page := list(processlog.Filter{Limit: 1, BusinessTypes: []string{"a", "b"}})
	assert.Equal(t, all[:1], keys, "the longest due first")
	assert.Equal(t, []string{"b"}, page.Partial, "what a full page leaves out")
	keys, page = list(processlog.Filter{MaxRead: 4, States: []processlog.State{processlog.Pending}, BusinessTypes: []string{"a", "b", "c", "paused"}})
	assert.ElementsMatch(t, []processlog.IdempotencyKey{held["a"][0], held["b"][0], held["c"][0]}, keys, "each type has a share of the rows to read")
	assert.Subset(t, page.Partial, []string{"b", "c", "paused"}, "types with due entries that were not read")
	assert.LessOrEqual(t, page.Read, 4)
}

func (t *storeTest) listPagesAreCompleteAndWithoutRepeats() {
	var batch, orders, everything []processlog.IdempotencyKey
	for i := range 9 {
		d := t.draft(fmt.Sprintf("kind-%d", i%2))
		everything = append(everything, d.IdempotencyKey)
		if i%3 == 0 {
			d.BatchID = "batch"
			batch = append(batch, d.IdempotencyKey)
		}
		if i%2 == 0 {
			d.BusinessID, d.BusinessExtID, d.UserID = "order", "ext", "u"
			orders = append(orders, d.IdempotencyKey)
		}
		t.insert(d)
	}
	dead := t.inState(processlog.Dead)
	everything = append(everything, dead.IdempotencyKey)
	hour := time.Hour
	for name, c := range map[string]struct {
		filter processlog.Filter
		want   []processlog.IdempotencyKey
	}{
		"everything":      {processlog.Filter{}, everything},
		"a batch":         {processlog.Filter{BatchID: "batch"}, batch},
		"a business id":   {processlog.Filter{BusinessID: "order"}, orders},
		"an ext id":       {processlog.Filter{BusinessExtID: "ext"}, orders},
		"a type":          {processlog.Filter{BusinessType: "kind-0"}, orders},
		"type and state":  {processlog.Filter{BusinessType: "kind-0", States: []processlog.State{processlog.Pending}}, orders},
		"a state":         {processlog.Filter{States: []processlog.State{processlog.Dead}}, []processlog.IdempotencyKey{dead.IdempotencyKey}},
		"several states":  {processlog.Filter{States: []processlog.State{processlog.Dead, processlog.Pending}}, everything},
		"created lately":  {processlog.Filter{CreatedFrom: time.Now().Add(-hour), CreatedTo: time.Now().Add(hour)}, everything},
		"created earlier": {processlog.Filter{CreatedTo: time.Now().Add(-hour)}, nil},
		"nothing":         {processlog.Filter{BatchID: "nobody"}, nil},
		"ended by":        {processlog.Filter{BusinessType: "states", States: []processlog.State{processlog.Dead}, EndedBy: dead.EndedBy}, []processlog.IdempotencyKey{dead.IdempotencyKey}},
		"a user":          {processlog.Filter{BusinessType: "kind-0", States: []processlog.State{processlog.Pending}, UserID: "u"}, orders},
		"a user's":        {processlog.Filter{BusinessType: "kind-0", UserID: "u"}, orders},
		"begin":           {processlog.Filter{BatchID: "bat", Prefix: true}, batch},
		"begin with case": {processlog.Filter{BatchID: "Bat", Prefix: true}, nil},
		"wildcard":        {processlog.Filter{BatchID: "b%", Prefix: true}, nil},
		"ended lately":    {processlog.Filter{EndedFrom: time.Now().Add(-hour), EndedTo: time.Now().Add(hour)}, []processlog.IdempotencyKey{dead.IdempotencyKey}},
		"ended earlier":   {processlog.Filter{EndedTo: time.Now().Add(-hour)}, nil},
		"due earlier":     {processlog.Filter{DueTo: time.Now().Add(-100 * hour)}, nil},
		"another user":    {processlog.Filter{BatchID: "batch", UserID: "v"}, nil},
	} {
		assert.ElementsMatch(t, c.want, t.pages(c.filter), name)
		c.filter.Newest = true
		assert.ElementsMatch(t, c.want, t.pages(c.filter), "%s, newest first", name)
	}
	assert.Equal(t, batch, t.pages(processlog.Filter{BatchID: "batch"}), "oldest first")
	_, err := t.Store.List(t.ctx, processlog.Filter{Cursor: "garbage"})
	var refused *processlog.FieldError
	require.ErrorAs(t, err, &refused)
	assert.Contains(t, refused.Field, "ursor")
}

func (t *storeTest) narrowedPagesGoOnWhereReadingStopped() {
	var dead []processlog.Row
	for _, text := range []string{"sold out", "100% of _", "Sold out", "sold out", ""} {
		row := t.insertOne("narrowed")
		o := outcome(t.claim(row.ID, token(9), time.Minute), processlog.Dead)
		o.LastError, o.EndedBy = text, processlog.EndedByExhausted
		require.True(t, t.settle(token(10), o).Applied)
		dead = append(dead, t.load(row.ID))
	}
	filter := processlog.Filter{BusinessType: "narrowed", States: []processlog.State{processlog.Dead}, MaxRead: 2}
	for text, want := range map[string][]processlog.Row{
		"sold out": {dead[0], dead[3]}, "old": {dead[0], dead[2], dead[3]}, "0% of _": {dead[1]}, "%": {dead[1]}, "_": {dead[1]}, "lost": nil,
	} {
		filter.LastError, filter.Cursor = text, ""
		var found []processlog.Row
		read := 0
		for pages := 1; ; pages++ {
			require.Less(t, pages, 10, "the listing ends")
			page, err := t.Store.List(t.ctx, filter)
			require.NoError(t, err)
			require.LessOrEqual(t, page.Read, 2)
			require.GreaterOrEqual(t, page.Read, len(page.Rows))
			read += page.Read
			found = append(found, page.Rows...)
			if filter.Cursor = page.Next; page.Next == "" {
				break
			}
		}
		assert.Equal(t, 5, read, "each row of the state and type is read once")
		require.Len(t, found, len(want), "%q", text)
		for i, row := range found {
			assert.Equal(t, want[i].ID, row.ID, "%q", text)
		}
	}
	_, err := t.Store.List(t.ctx, processlog.Filter{LastError: "sold out", States: []processlog.State{processlog.Dead}})
	require.ErrorAs(t, err, new(*processlog.FieldError), "a search without a type would read the whole table")
}

// Failure: F122
func (t *storeTest) pagesOfSomeTypesAreFullOfThemAlone() {
	var mine []processlog.ID
	for i := range 24 {
		d := t.draft([]string{"mine", "theirs", "theirs", "also mine", "theirs", "theirs"}[i%6])
		d.BatchID, d.BusinessID, d.UserID = "batch", "order", []string{"u", "v"}[i/6%2]
		if id := t.insert(d)[0].ID; d.BusinessType != "theirs" {
			mine = append(mine, id)
		}
	}
	assert.Empty(t, t.pages(processlog.Filter{BusinessType: "theirs", BusinessTypes: []string{"mine"}}))
	older := time.Now().Add(-time.Hour)
	for _, f := range []processlog.Filter{{}, {States: []processlog.State{processlog.Pending}}, {BatchID: "batch"}, {CreatedFrom: older}, {BatchID: "batch", UserID: "u"}} {
		f.BusinessTypes = []string{}
		assert.Empty(t, t.pages(f), "an empty list of types gives no rows, %+v", f)
	}
	for name, f := range map[string]processlog.Filter{
		"all": {}, "a state": {States: []processlog.State{processlog.Pending}}, "a batch": {BatchID: "batch"}, "an id and a state": {BusinessID: "order", States: []processlog.State{processlog.Pending}},
		"created": {CreatedFrom: older}, "created, in a state": {CreatedFrom: older, States: []processlog.State{processlog.Pending, processlog.Dead}}, "of a type": {BatchID: "batch", BusinessType: "also mine"},
		"of a user": {CreatedFrom: older, UserID: "v"},
	} {
		for _, f.Newest = range []bool{false, true} {
			f.BusinessTypes, f.Outline, f.MaxRead, f.Cursor = []string{"mine", "also mine", "nobody's"}, true, 4, ""
			f.Limit = 2
			var found []processlog.ID
			for more := true; more && len(found) <= len(mine); more = f.Cursor != "" {
				page, err := t.Store.List(t.ctx, f)
				require.NoError(t, err, name)
				for _, row := range page.Rows {
					assert.NotEqual(t, "theirs", row.BusinessType, name)
					assert.Empty(t, row.Content, name)
					assert.NotEmpty(t, row.IdempotencyKey, name)
					found = append(found, row.ID)
				}
				if f.Cursor = page.Next; f.Cursor != "" && f.UserID == "" && f.BusinessType == "" {
					assert.Len(t, page.Rows, 2, name)
				}
			}
			want := len(mine)
			if f.UserID != "" || f.BusinessType != "" {
				want /= 2
			}
			assert.Len(t, found, want, "%s, newest %v", name, f.Newest)
			assert.Subset(t, mine, found, name)
		}
	}
}

func (t *storeTest) countsAreRightUpToTheirBound() {
	for range 5 {
		d := t.draft("counted")
		d.BatchID = "batch"
		t.insert(d)
	}
	t.inState(processlog.Dead)
	var tx processlog.Tx
	counts := func(filter processlog.CountFilter) map[string]processlog.Count {
		list, err := t.Store.Count(t.ctx, tx, filter)
		require.NoError(t, err)
		found := make(map[string]processlog.Count)
		for _, c := range list {
			found[c.BusinessType+" "+c.State.String()] = c
		}
		return found
	}
	all := counts(processlog.CountFilter{})
	assert.Equal(t, 5, all["counted pending"].N)
	assert.False(t, all["counted pending"].More)
	assert.Equal(t, 1, all["states dead"].N)
	bounded := counts(processlog.CountFilter{BusinessType: "counted", AtMost: 3})
	assert.Equal(t, 3, bounded["counted pending"].N)
	assert.True(t, bounded["counted pending"].More)
	assert.NotContains(t, bounded, "states dead")
	batch := processlog.CountFilter{BatchID: "batch"}
	assert.Equal(t, 5, counts(batch)["counted pending"].N)
	own := t.begin()
	d := t.draft("counted")
	d.BatchID = "batch"
	_, err := t.Store.Insert(t.ctx, own, []processlog.Draft{d}, false)
	require.NoError(t, err)
	tx = own
	assert.Equal(t, 6, counts(batch)["counted pending"].N, "Count sees the transaction's own writes")
	assert.Equal(t, 6, counts(processlog.CountFilter{BusinessType: "counted"})["counted pending"].N)
	require.NoError(t, own.Rollback())
	_, err = t.Store.Count(t.ctx, own, batch)
	require.ErrorIs(t, err, processlog.ErrNoTransaction)
	tx = nil
	assert.Equal(t, 5, counts(batch)["counted pending"].N)
}

func (t *storeTest) purgeTakesOnlyOldTerminalEntries() {
	pending, done, dead := t.inState(processlog.Pending), t.inState(processlog.Succeeded), t.inState(processlog.Dead)
	n, err := t.Store.Purge(t.ctx, "", processlog.Succeeded, time.Hour, 100)
	require.NoError(t, err)
	assert.Zero(t, n, "the entry is too young")
	t.waitUntil(func() bool {
		n, err = t.Store.Purge(t.ctx, "other", processlog.Succeeded, time.Millisecond, 100)
		require.Zero(t, n, "the entry has another type")
		if err != nil {
			return true
		}
		n, err = t.Store.Purge(t.ctx, done.BusinessType, processlog.Succeeded, time.Millisecond, 100)
		return err != nil || n > 0
	}, "the entry is old enough")
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	rows, err := t.Store.Load(t.ctx, []processlog.ID{pending.ID, done.ID, dead.ID})
	require.NoError(t, err)
	assert.Len(t, rows, 2)
	_, err = t.Store.Purge(t.ctx, "", processlog.Retrying, time.Millisecond, 100)
	require.Error(t, err, "an entry that has not ended is never purged")
}

func (t *storeTest) versionsAreThoseOfTheRows() {
	fresh, claimed := t.insertOne("versions"), t.claim(t.insertOne("versions").ID, token(1), time.Minute)
	tx := t.begin()
	_, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{t.draft("versions")}, false)
	require.NoError(t, err)
	unknown := processlog.RowID(claimed.ID.Row() + 1)
	got, err := t.Store.Versions(t.ctx, []processlog.ID{fresh.ID, claimed.ID, unknown})
	require.NoError(t, err)
	var want []processlog.Version
	for _, row := range []processlog.Row{fresh, claimed} {
		want = append(want, processlog.Version{ID: row.ID, IdempotencyKey: row.IdempotencyKey, State: row.State, Number: row.Version, Epoch: row.Epoch, Token: row.Token})
	}
	assert.ElementsMatch(t, want, got)
	none, err := t.Store.Versions(t.ctx, nil)
	assert.NoError(t, err)
	assert.Empty(t, none)
}

func (t *storeTest) notesAreTheLogsOwn() {
	row := t.insertOne("noted")
	for i, actor := range []string{"ann", "bob"} {
		require.NoError(t, t.Store.Note(t.ctx, processlog.ActionAcceptLoss, processlog.AuditInfo{Actor: actor, Reason: "because"}))
		notes, err := t.Store.History(t.ctx, processlog.ID{})
		require.NoError(t, err)
		require.Len(t, notes, i+1)
		assert.Equal(t, []any{processlog.ID{}, processlog.ActionAcceptLoss, actor, "because"},
			[]any{notes[i].EntryID, notes[i].Action, notes[i].Actor, notes[i].Reason})
		assert.Less(t, notes[i].Ago.Abs(), eventually, "by the database's clock")
	}
	history, err := t.Store.History(t.ctx, row.ID)
	require.NoError(t, err)
	assert.Empty(t, history)
}
