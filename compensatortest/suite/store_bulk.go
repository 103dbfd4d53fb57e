package suite

import (
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

func newBatch(secret string) processlog.BulkBatch {
	return processlog.BulkBatch{ID: processlog.BulkID{Secret: secret + "0123456789abcdef"}, Action: processlog.ActionRequeue, Actor: "ann", Reason: "PSP is back", Plan: json.RawMessage(`{"total":3}`)}
}

func annRequeues() processlog.Change {
	change := newChange(nil, processlog.ActionRequeue)
	change.Actor, change.Reason = "ann", "PSP is back"
	return change
}

func (t *storeTest) batchIsRecordedWithItsChange() {
	moved, dead, gone := t.die("refund", caseDraft(1, 1, "CNY")), t.die("refund", caseDraft(1, 1, "CNY")), t.insertOne("refund")
	seen := []processlog.Version{seenAs(moved), seenAs(dead), seenAs(gone)}
	seen[2].ID = processlog.RowID(gone.ID.Row() + 1000)
	t.change(moved.ID, processlog.ActionCancel)
	batch := newBatch("a")
	batch.Skipped = []processlog.BulkSkip{{ID: gone.ID, Why: "not_allowed"}}
	record, answers, err := t.ops().ChangeBulk(t.ctx, seen, annRequeues(), batch)
	require.NoError(t, err)
	require.ErrorIs(t, answers[0].Err, processlog.ErrChanged)
	require.NoError(t, answers[1].Err)
	require.ErrorIs(t, answers[2].Err, processlog.ErrNotFound)
	require.NotZero(t, record)
	id := processlog.BulkID{Record: record, Secret: batch.ID.Secret}
	c, found := t.caseOf(dead.ID)
	assert.True(t, found && !c.ClosedAt.IsZero(), "the case is closed as ChangeAll closes it")
	history, err := t.Store.History(t.ctx, dead.ID)
	require.NoError(t, err)
	require.Len(t, history, 1)

	batches, err := t.ops().Bulk(t.ctx, id)
	require.NoError(t, err)
	require.Len(t, batches, 1)
	got, now := batches[0], t.load(dead.ID)
	assert.Equal(t, []any{id, processlog.ActionRequeue, "ann", "PSP is back"}, []any{got.ID, got.Action, got.Actor, got.Reason})
	assert.Equal(t, []processlog.BulkEntry{{ID: dead.ID, Version: now.Version, Epoch: now.Epoch}}, got.Entries)
	assert.Equal(t, []processlog.BulkSkip{{ID: gone.ID, Why: "not_allowed"}, {ID: moved.ID, Why: processlog.BulkChanged}, {ID: seen[2].ID, Why: processlog.BulkNotFound}}, got.Skipped)
	assert.JSONEq(t, `{"total":3}`, string(got.Plan))
	assert.Equal(t, record, got.Record)
	assert.False(t, got.At.IsZero())

	page, err := t.ops().AuditLog(t.ctx, processlog.AuditLogFilter{})
	require.NoError(t, err)
	i := slices.IndexFunc(page.Records, func(r processlog.AuditLogRecord) bool { return r.Bulk != nil })
	require.GreaterOrEqual(t, i, 0, "the audit log has the action itself")
	assert.Equal(t, []any{id, processlog.EntryCount(1), 1, "requeue", true}, []any{*page.Records[i].Bulk, page.Records[i].Subject, page.Records[i].N, page.Records[i].Action, page.Records[i].EntryID.IsZero()})
	t.requireEntryInBatch(dead.ID)
	notes, err := t.Store.History(t.ctx, processlog.ID{})
	require.NoError(t, err)
	assert.Empty(t, notes, "an action on entries is no action on the whole log")
}

func (t *storeTest) requireEntryInBatch(id processlog.ID) {
	t.Helper()
	isRequeued := func(f processlog.AuditLogFilter) bool {
		f.Action = "requeue"
		page, err := t.ops().AuditLog(t.ctx, f)
		require.NoError(t, err)
		return slices.ContainsFunc(page.Records, func(r processlog.AuditLogRecord) bool { return r.EntryID == id && r.Before != nil })
	}
	requireOnlyOnDemand := func() {
		assert.False(t, isRequeued(processlog.AuditLogFilter{}), "the batch stands for its entry")
		assert.True(t, isRequeued(processlog.AuditLogFilter{EntryID: id}))
		assert.True(t, isRequeued(processlog.AuditLogFilter{EachEntry: true}))
	}
	requireOnlyOnDemand()
	for _, action := range []processlog.Action{processlog.ActionCancel, processlog.ActionErase} {
		t.change(id, action)
	}
	requireOnlyOnDemand()
}

func (t *storeTest) batchesOfAnActionAreFoundByItsID() {
	a, b := t.die("refund", caseDraft(1, 1, "CNY")), t.die("refund", caseDraft(1, 1, "CNY"))
	id, other := newBatch("a").ID, newBatch("b").ID
	var err error
	id.Record, _, err = t.ops().ChangeBulk(t.ctx, []processlog.Version{seenAs(a)}, annRequeues(), newBatch("a"))
	require.NoError(t, err)
	other.Record, _, err = t.ops().ChangeBulk(t.ctx, nil, annRequeues(), newBatch("b"))
	require.NoError(t, err)
	second := newBatch("a")
	second.ID, second.Actor = id, "bob"
	record, _, err := t.ops().ChangeBulk(t.ctx, []processlog.Version{seenAs(b)}, annRequeues(), second)
	require.NoError(t, err)
	assert.Greater(t, record, other.Record, "a later batch has a record of its own")

	batches, err := t.ops().Bulk(t.ctx, id)
	require.NoError(t, err)
	require.Len(t, batches, 2)
	assert.Equal(t, []uint64{id.Record, record}, []uint64{batches[0].Record, batches[1].Record})
	assert.Equal(t, []any{"ann", a.ID, "bob", b.ID}, []any{batches[0].Actor, batches[0].Entries[0].ID, batches[1].Actor, batches[1].Entries[0].ID})
	none, err := t.ops().Bulk(t.ctx, other)
	require.NoError(t, err)
	require.Len(t, none, 1)
	assert.Empty(t, none[0].Entries, "a batch may change nothing")
	page, err := t.ops().AuditLog(t.ctx, processlog.AuditLogFilter{Actor: "bob"})
	require.NoError(t, err)
	require.NotEmpty(t, page.Records)
	for _, wrong := range []processlog.BulkID{{Record: id.Record, Secret: other.Secret}, {Record: other.Record, Secret: id.Secret}, {Record: id.Record + 1000, Secret: id.Secret}} {
		_, err := t.ops().Bulk(t.ctx, wrong)
		require.ErrorIs(t, err, processlog.ErrNotFound)
	}
}

func (t *storeTest) batchFollowsTheLastOneOnly() {
	id := newBatch("a").ID
	var err error
	id.Record, _, err = t.ops().ChangeBulk(t.ctx, nil, annRequeues(), newBatch("a"))
	require.NoError(t, err)
	next := func(follows uint64, rows ...processlog.Row) (uint64, error) {
		batch := newBatch("a")
		batch.ID, batch.Follows = id, follows
		var seen []processlog.Version
		for _, row := range rows {
			seen = append(seen, seenAs(row))
		}
		record, _, err := t.ops().ChangeBulk(t.ctx, seen, annRequeues(), batch)
		return record, err
	}
	a, b := t.die("refund", caseDraft(1, 1, "CNY")), t.die("refund", caseDraft(1, 1, "CNY"))
	second, err := next(id.Record, a)
	require.NoError(t, err)
	_, err = next(id.Record, b)
	require.ErrorIs(t, err, processlog.ErrChanged)
	assert.Equal(t, processlog.Dead, t.load(b.ID).State, "nothing is changed")
	_, err = next(second, b)
	require.NoError(t, err)
	batches, err := t.ops().Bulk(t.ctx, id)
	require.NoError(t, err)
	require.Len(t, batches, 3)

	last := batches[2].Record
	for range processlog.MaxBulkBatches {
		last, err = next(last)
		require.NoError(t, err)
	}
	batches, err = t.ops().Bulk(t.ctx, id)
	require.NoError(t, err)
	require.Len(t, batches, 1+processlog.MaxBulkBatches, "the first batch and the last ones are read")
	assert.Equal(t, []uint64{id.Record, last}, []uint64{batches[0].Record, batches[processlog.MaxBulkBatches].Record})
	assert.Greater(t, batches[1].Record, second)
}

func (t *storeTest) oneOfManyBatchesFollowsTheLastOne() {
	batch := newBatch("a")
	var err error
	batch.ID.Record, _, err = t.ops().ChangeBulk(t.ctx, nil, annRequeues(), batch)
	require.NoError(t, err)
	seen := []processlog.Version{seenAs(t.die("refund", caseDraft(1, 1, "CNY"))), seenAs(t.die("refund", caseDraft(1, 1, "CNY")))}
	batch.Follows = batch.ID.Record
	var stored atomic.Int32
	inParallel(func(int) {
		err := processlog.ErrBusy
		for deadline := time.Now().Add(eventually); errors.Is(err, processlog.ErrBusy) && time.Now().Before(deadline); {
			change := annRequeues()
			change.Token = processlog.NewToken()
			_, _, err = t.ops().ChangeBulk(t.ctx, seen, change, batch)
		}
		if err == nil {
			stored.Add(1)
		} else {
			assert.ErrorIs(t, err, processlog.ErrChanged)
		}
	})
	assert.EqualValues(t, 1, stored.Load())
	batches, err := t.ops().Bulk(t.ctx, batch.ID)
	require.NoError(t, err)
	require.Len(t, batches, 2)
	assert.Len(t, batches[1].Entries, 2, "the caller that lost the race kept no entry from the other")
}

func (t *storeTest) actionWithASecretBeginsOnce() {
	batch := newBatch("a")
	batch.Once = true
	_, err := t.ops().Bulk(t.ctx, batch.ID)
	require.ErrorIs(t, err, processlog.ErrNotFound)
	seen := []processlog.Version{seenAs(t.die("refund", caseDraft(1, 1, "CNY")))}
	var begun atomic.Int64
	inParallel(func(int) {
		err := processlog.ErrBusy
		for deadline := time.Now().Add(eventually); errors.Is(err, processlog.ErrBusy) && time.Now().Before(deadline); {
			change := annRequeues()
			change.Token = processlog.NewToken()
			var record uint64
			if record, _, err = t.ops().ChangeBulk(t.ctx, seen, change, batch); err == nil {
				assert.True(t, begun.CompareAndSwap(0, int64(record)), "a second action has begun")
			}
		}
		if err != nil {
			assert.ErrorIs(t, err, processlog.ErrChanged)
		}
	})
	other := newBatch("b")
	other.Once = true
	_, _, err = t.ops().ChangeBulk(t.ctx, nil, annRequeues(), other)
	require.NoError(t, err)
	_, _, err = t.ops().ChangeBulk(t.ctx, nil, annRequeues(), batch)
	require.ErrorIs(t, err, processlog.ErrChanged)
	found, err := t.ops().Bulk(t.ctx, batch.ID)
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, []any{uint64(begun.Load()), 1}, []any{found[0].Record, len(found[0].Entries)})
}

func (t *storeTest) idsOfAllThatMatchAreInOrder() {
	var refunds []processlog.Row
	for _, draft := range []*processlog.CaseDraft{caseDraft(1, 1, "CNY"), caseDraft(2, 1, "CNY"), caseDraft(1, 1, "CNY")} {
		refunds = append(refunds, t.die("refund", draft))
	}
	mail, waiting := t.die("mail", caseDraft(1, 1, "CNY")), t.insertOne("refund")
	t.change(refunds[0].ID, processlog.ActionCancel)
	cancelled, first, last := refunds[0].ID, refunds[1].ID, refunds[2].ID
	dead := []processlog.State{processlog.Dead}
	ended := []processlog.State{processlog.Dead, processlog.Cancelled}
	c, found := t.caseOf(first)
	require.True(t, found)
	at := t.load(cancelled)
	for name, test := range map[string]struct {
		match processlog.Match
		want  []processlog.ID
	}{
		"of a type":                    {processlog.Match{Filter: processlog.Filter{States: dead, BusinessType: "refund"}}, []processlog.ID{first, last}},
		"of types":                     {processlog.Match{Filter: processlog.Filter{States: dead, BusinessTypes: []string{"mail", "nosuch"}}}, []processlog.ID{mail.ID}},
		"of no type":                   {processlog.Match{Filter: processlog.Filter{States: dead, BusinessTypes: []string{}}}, nil},
		"of states":                    {processlog.Match{Filter: processlog.Filter{States: ended}}, []processlog.ID{cancelled, first, last, mail.ID}},
		"after an id":                  {processlog.Match{Filter: processlog.Filter{States: ended}, After: cancelled, UpTo: last}, []processlog.ID{first, last}},
		"up to a number":               {processlog.Match{Filter: processlog.Filter{States: ended}, Limit: 2}, []processlog.ID{cancelled, first}},
		"of a failure":                 {processlog.Match{Filter: processlog.Filter{States: dead}, Fingerprint: c.Fingerprint}, []processlog.ID{first}},
		"of a failure and other types": {processlog.Match{Filter: processlog.Filter{States: dead, BusinessTypes: []string{"mail"}}, Fingerprint: c.Fingerprint}, nil},
		"of a business id":             {processlog.Match{Filter: processlog.Filter{States: ended, BusinessID: at.BusinessID}}, []processlog.ID{cancelled}},
		"of the beginning of an id":    {processlog.Match{Filter: processlog.Filter{States: ended, BusinessID: "o-", Prefix: true}}, []processlog.ID{cancelled, first, last, mail.ID}},
		"recorded since":               {processlog.Match{Filter: processlog.Filter{States: ended, CreatedFrom: at.CreatedAt}}, []processlog.ID{cancelled, first, last, mail.ID}},
		"recorded before":              {processlog.Match{Filter: processlog.Filter{States: ended, CreatedTo: at.CreatedAt}}, nil},
		"that ended before":            {processlog.Match{Filter: processlog.Filter{States: ended, EndedTo: at.CreatedAt.Add(-1)}}, nil},
		"that wait":                    {processlog.Match{Filter: processlog.Filter{States: []processlog.State{processlog.Pending}}}, []processlog.ID{waiting.ID}},
	} {
		if test.match.Limit == 0 {
			test.match.Limit = 100
		}
		ids, err := t.ops().MatchingIDs(t.ctx, test.match)
		require.NoError(t, err, name)
		require.True(t, slices.IsSortedFunc(ids, processlog.ID.Compare), name)
		rows, err := t.ops().Outlines(t.ctx, ids)
		require.NoError(t, err, name)
		ids = slices.DeleteFunc(ids, func(id processlog.ID) bool {
			i := slices.IndexFunc(rows, func(row processlog.Row) bool { return row.ID == id })
			var ofEntry *processlog.Case
			if c, found := t.caseOf(id); found {
				ofEntry = &c
			}
			return !test.match.Admits(&rows[i], ofEntry)
		})
		if len(test.want) == 0 {
			require.Empty(t, ids, name)
		} else {
			require.Equal(t, test.want, ids, name)
		}
	}
	for _, wrong := range []processlog.Filter{{}, {BusinessType: "refund"}, {States: dead, LastError: "x"}} {
		_, err := t.ops().MatchingIDs(t.ctx, processlog.Match{Filter: wrong, Limit: 1})
		require.ErrorAs(t, err, new(*processlog.FieldError))
	}
}
