package suite

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

var resultPromises = []storePromise{
	{"ResultComesWithItsSuccess", false, (*storeTest).resultComesWithItsSuccess},
	{"ResultsOfManyEntriesAreStoredAtOnce", false, (*storeTest).resultsOfManyEntriesAreStoredAtOnce},
	{"LargeResultsAreStored", false, (*storeTest).largeResultsAreStored},
	{"ResultIsStoredWithItsOutcomeOnly", false, (*storeTest).resultIsStoredWithItsOutcomeOnly},
	{"ResultCommitsWithTheHandlersTransaction", false, (*storeTest).resultCommitsWithTheHandlersTransaction},
	{"ResultCountsInItsEpochOnly", false, (*storeTest).resultCountsInItsEpochOnly},
	{"EraseTakesTheResultToo", false, (*storeTest).eraseTakesTheResultToo},
	{"PurgeTakesTheResultToo", false, (*storeTest).purgeTakesTheResultToo},
	{"EndsHaveNoContentBeforeTheEnd", false, (*storeTest).endsHaveNoContentBeforeTheEnd},
}

func (t *storeTest) ends(ids ...processlog.ID) map[processlog.ID]processlog.Row {
	t.Helper()
	rows, err := t.Store.Ends(t.ctx, ids)
	require.NoError(t, err)
	found := make(map[processlog.ID]processlog.Row)
	for _, row := range rows {
		require.NotContains(t, found, row.ID)
		found[row.ID] = row
	}
	return found
}

func (t *storeTest) succeedWith(id processlog.ID, result []byte) processlog.Row {
	t.Helper()
	claimed := t.claim(id, processlog.NewToken(), time.Minute)
	o := outcome(claimed, processlog.Succeeded)
	o.Result = result
	require.True(t, t.settle(processlog.NewToken(), o).Applied)
	return claimed
}

func (t *storeTest) resultComesWithItsSuccess() {
	id, without := t.insertOne("results").ID, t.insertOne("results").ID
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	t.succeedWith(id, every)
	t.succeedWith(without, nil)
	ends := t.ends(without, id)
	assert.Equal(t, every, ends[id].Result)
	assert.Equal(t, processlog.Succeeded, ends[id].State)
	assert.Nil(t, ends[without].Result)
	assert.Nil(t, t.load(id).Result, "only Ends reads results")
	empty := t.insertOne("results").ID
	t.succeedWith(empty, []byte{})
	require.NotNil(t, t.ends(empty)[empty].Result, "an empty result is a result")
	assert.Empty(t, t.ends(empty)[empty].Result)
}

func (t *storeTest) resultsOfManyEntriesAreStoredAtOnce() {
	const entries = 230
	var ids []processlog.ID
	for range entries {
		ids = append(ids, t.insertOne("results").ID)
	}
	want := make(map[processlog.ID][]byte)
	var outcomes []processlog.Outcome
	for i, row := range t.claimAll(token(1), time.Minute, ids...) {
		o := outcome(row, processlog.Succeeded)
		if i%3 > 0 {
			o.Result = []byte(row.ID.String())
			want[row.ID] = o.Result
		}
		outcomes = append(outcomes, o)
	}
	for _, answer := range t.settleAll(token(2), outcomes) {
		require.True(t, answer.Applied)
	}
	ends := t.ends(ids...)
	require.Len(t, ends, entries)
	for id, row := range ends {
		require.Equal(t, want[id], row.Result)
		require.Equal(t, processlog.Succeeded, row.State)
	}
}

func (t *storeTest) largeResultsAreStored() {
	var ids []processlog.ID
	for range 5 {
		ids = append(ids, t.insertOne("results").ID)
	}
	want := make(map[processlog.ID][]byte)
	var outcomes []processlog.Outcome
	for i, row := range t.claimAll(token(1), time.Minute, ids...) {
		o := outcome(row, processlog.Succeeded)
		o.Result = bytes.Repeat([]byte{byte('a' + i)}, 256<<10)
		want[row.ID] = o.Result
		outcomes = append(outcomes, o)
	}
	for _, answer := range t.settleAll(token(2), outcomes) {
		require.True(t, answer.Applied)
	}
	for id, row := range t.ends(ids...) {
		require.True(t, bytes.Equal(want[id], row.Result))
	}
}

func (t *storeTest) resultIsStoredWithItsOutcomeOnly() {
	id := t.insertOne("results").ID
	claimed := t.claim(id, token(1), time.Minute)
	o := outcome(claimed, processlog.Succeeded)
	o.Result = []byte("first")
	for range 2 {
		require.True(t, t.settle(token(2), o).Applied)
	}
	late := o
	late.Result = []byte("second")
	require.False(t, t.settle(token(3), late).Applied, "the success of another attempt came first")
	assert.Equal(t, []byte("first"), t.ends(id)[id].Result)

	failed := t.insertOne("results").ID
	dead := outcome(t.claim(failed, token(4), time.Minute), processlog.Dead)
	dead.LastError, dead.Result = "why", []byte("of a failure")
	require.True(t, t.settle(token(5), dead).Applied)
	assert.Nil(t, t.ends(failed)[failed].Result, "only a success has a result")
}

func (t *storeTest) resultCommitsWithTheHandlersTransaction() {
	id := t.insertOne("results").ID
	claimed := t.claim(id, token(1), time.Minute)
	o := outcome(claimed, processlog.Succeeded)
	o.Result = []byte(`"paid"`)
	undone := errors.New("undone")
	run := func(o processlog.Outcome, end error) error {
		tx, err := t.Store.Begin(t.ctx)
		require.NoError(t, err)
		if err := t.Store.SettleTx(t.ctx, tx, token(2), o); err != nil {
			require.NoError(t, tx.Rollback())
			return err
		}
		if end != nil {
			require.NoError(t, tx.Rollback())
			return end
		}
		return tx.Commit()
	}
	require.ErrorIs(t, run(o, undone), undone)
	assert.Equal(t, processlog.Pending, t.ends(id)[id].State)
	stale := o
	stale.Version--
	require.ErrorIs(t, run(stale, nil), processlog.ErrLeaseLost)
	require.NoError(t, run(o, nil))
	end := t.ends(id)[id]
	assert.Equal(t, processlog.Succeeded, end.State)
	assert.Equal(t, o.Result, end.Result)
}

func (t *storeTest) resultCountsInItsEpochOnly() {
	id := t.insertOne("results").ID
	t.succeedWith(id, []byte("old"))
	requeue := processlog.Change{Ref: id, Action: processlog.ActionRequeue, Actor: "mei", Reason: "again"}
	again := func() {
		requeue.Token = processlog.NewToken()
		_, err := t.Store.Change(t.ctx, nil, false, requeue)
		require.NoError(t, err)
	}
	again()
	assert.Nil(t, t.ends(id)[id].Result)
	t.succeedWith(id, nil)
	assert.Nil(t, t.ends(id)[id].Result, "the handler of this epoch returned no result")
	again()
	t.succeedWith(id, []byte("new"))
	assert.Equal(t, []byte("new"), t.ends(id)[id].Result)
}

func (t *storeTest) eraseTakesTheResultToo() {
	id, stays := t.insertOne("results").ID, t.insertOne("results").ID
	t.succeedWith(id, []byte("personal"))
	t.succeedWith(stays, []byte("stays"))
	_, err := t.Store.Change(t.ctx, nil, false, processlog.Change{Ref: id, Action: processlog.ActionErase, Actor: "mei", Reason: "asked", Token: token(9)})
	require.NoError(t, err)
	ends := t.ends(id, stays)
	assert.True(t, ends[id].Erased)
	assert.Nil(t, ends[id].Result)
	assert.Equal(t, []byte("stays"), ends[stays].Result)
}

// A new entry with the same id must not have the old result.
func (t *storeTest) purgeTakesTheResultToo() {
	gone, stays := t.insertOne("results").ID, t.insertOne("others").ID
	t.succeedWith(gone, []byte("gone"))
	t.succeedWith(stays, []byte("stays"))
	t.waitUntil(func() bool {
		n, err := t.Store.Purge(t.ctx, "results", processlog.Succeeded, 0, 10)
		require.NoError(t, err)
		return n == 1
	}, "the entry is purged")
	ends := t.ends(gone, stays)
	assert.NotContains(t, ends, gone)
	assert.Equal(t, []byte("stays"), ends[stays].Result)
}

func (t *storeTest) endsHaveNoContentBeforeTheEnd() {
	open, ended := t.insertOne("results").ID, t.insertOne("results").ID
	t.succeedWith(ended, []byte("r"))
	absent := processlog.RowID(ended.Row() + 100_000)
	ends := t.ends(open, ended, absent)
	require.Len(t, ends, 2)
	want := t.load(open)
	assert.NotEmpty(t, want.Content)
	assert.Empty(t, ends[open].Content)
	assert.Equal(t, want.State, ends[open].State)
	assert.Equal(t, want.Version, ends[open].Version)
	assert.Equal(t, want.IdempotencyKey, ends[open].IdempotencyKey)
	assert.Equal(t, t.load(ended).Content, ends[ended].Content)

	many := []processlog.ID{open}
	for n := range 1_200 {
		many = append(many, processlog.RowID(absent.Row()+uint64(n)))
	}
	slices.Reverse(many)
	assert.Len(t, t.ends(many...), 1)
	none, err := t.Store.Ends(t.ctx, nil)
	require.NoError(t, err)
	assert.Empty(t, none)
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	_, err = t.Store.Ends(ctx, many)
	require.Error(t, err)
}
