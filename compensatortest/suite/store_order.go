package suite

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

var orderPromises = []storePromise{
	{"DueListsTheEarliestFirstAndNothingTerminal", false, (*storeTest).dueListsTheEarliestFirstAndNothingTerminal},
	{"DueFindsEveryStateThatCanBeClaimed", false, (*storeTest).dueFindsEveryStateThatCanBeClaimed},
	{"LoadAndIDsLeaveOutWhatIsNotThere", false, (*storeTest).loadAndIDsLeaveOutWhatIsNotThere},
	{"NewestListsInReverseOfCreation", false, (*storeTest).newestListsInReverseOfCreation},
	{"ListHoldsFiftyUnlessTold", false, (*storeTest).listHoldsFiftyUnlessTold},
	{"PurgeTakesNoMoreThanAskedAndFreesTheKey", false, (*storeTest).purgeTakesNoMoreThanAskedAndFreesTheKey},
}

func (t *storeTest) dueListsTheEarliestFirstAndNothingTerminal() {
	late, soon := t.draft("order"), t.draft("order")
	late.Delay, soon.Delay = 150*time.Millisecond, 10*time.Millisecond
	rows := t.insert(late, soon)
	done := t.insertOne("order")
	t.settleTo(done, processlog.Succeeded)
	var due []processlog.ID
	t.waitUntil(func() bool {
		var err error
		due, err = t.Store.Due(t.ctx, "order", 10)
		return err != nil || len(due) >= 2
	}, "both entries come due")
	assert.Equal(t, []processlog.ID{rows[1].ID, rows[0].ID}, due)
}

func (t *storeTest) dueFindsEveryStateThatCanBeClaimed() {
	var want []processlog.ID
	for _, state := range processlog.States {
		if row := t.inState(state); !state.Terminal() {
			want = append(want, row.ID)
		}
	}
	due, err := t.Store.Due(t.ctx, "states", 10)
	require.NoError(t, err)
	assert.ElementsMatch(t, want, due)
	due, err = t.Store.Due(t.ctx, "states", 2)
	require.NoError(t, err)
	assert.Len(t, due, 2, "the limit applies to all states together")
}

func (t *storeTest) loadAndIDsLeaveOutWhatIsNotThere() {
	row := t.insertOne("there")
	rows, err := t.Store.Load(t.ctx, []processlog.ID{row.ID, processlog.RowID(1 << 40)})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	assert.Equal(t, row.ID, rows[0].ID)
	rows, err = t.Store.Load(t.ctx, nil)
	require.NoError(t, err)
	assert.Empty(t, rows)
	ids, err := t.Store.IDs(t.ctx, nil, []processlog.IdempotencyKey{"nobody", row.IdempotencyKey})
	require.NoError(t, err)
	assert.Equal(t, map[processlog.IdempotencyKey]processlog.ID{row.IdempotencyKey: row.ID}, ids)
	ids, err = t.Store.IDs(t.ctx, nil, nil)
	require.NoError(t, err)
	assert.Empty(t, ids)
}

func (t *storeTest) newestListsInReverseOfCreation() {
	var keys []processlog.IdempotencyKey
	for range 7 {
		d := t.draft("newest")
		d.BatchID, d.BusinessID, d.BusinessExtID = "batch", "order", "ext"
		keys = append(keys, t.insert(d)[0].IdempotencyKey)
	}
	reversed := slices.Clone(keys)
	slices.Reverse(reversed)
	for _, filter := range []processlog.Filter{{}, {BatchID: "batch"}, {BusinessID: "order"}, {BusinessExtID: "ext"}} {
		assert.Equal(t, keys, t.pages(filter), "%+v", filter)
		filter.Newest = true
		assert.Equal(t, reversed, t.pages(filter), "%+v", filter)
	}
}

func (t *storeTest) listHoldsFiftyUnlessTold() {
	var drafts []processlog.Draft
	for i := range 60 {
		d := t.draft("fifty")
		d.IdempotencyKey = processlog.IdempotencyKey(fmt.Sprintf("fifty-%02d", i))
		drafts = append(drafts, d)
	}
	t.insert(drafts...)
	first, err := t.Store.List(t.ctx, processlog.Filter{BusinessType: "fifty"})
	require.NoError(t, err)
	assert.Len(t, first.Rows, 50)
	second, err := t.Store.List(t.ctx, processlog.Filter{BusinessType: "fifty", Cursor: first.Next})
	require.NoError(t, err)
	assert.Len(t, second.Rows, 10)
	assert.Empty(t, second.Next)
}

func (t *storeTest) purgeTakesNoMoreThanAskedAndFreesTheKey() {
	var rows []processlog.Row
	for range 3 {
		rows = append(rows, t.inState(processlog.Cancelled))
	}
	t.waitUntil(func() bool { return t.load(rows[2].ID).DueIn < -5*time.Millisecond }, "the entries are old enough")
	n, err := t.Store.Purge(t.ctx, "", processlog.Cancelled, time.Millisecond, 2)
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	n, err = t.Store.Purge(t.ctx, "", processlog.Cancelled, time.Millisecond, 2)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	again := t.draft("states")
	again.IdempotencyKey = rows[0].IdempotencyKey
	assert.Equal(t, processlog.Pending, t.insert(again)[0].State, "a purged key may be recorded again")
}
