package suite

import (
	"encoding/json"
	"slices"

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
	id, answers, err := t.ops().ChangeBulk(t.ctx, seen, annRequeues(), batch)
	require.NoError(t, err)
	require.ErrorIs(t, answers[0].Err, processlog.ErrChanged)
	require.NoError(t, answers[1].Err)
	require.ErrorIs(t, answers[2].Err, processlog.ErrNotFound)
	require.NotZero(t, id.Record)
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
	assert.False(t, got.At.IsZero())

	page, err := t.ops().AuditLog(t.ctx, processlog.AuditLogFilter{})
	require.NoError(t, err)
	i := slices.IndexFunc(page.Records, func(r processlog.AuditLogRecord) bool { return r.Bulk != nil })
	require.GreaterOrEqual(t, i, 0, "the audit log has the action itself")
	assert.Equal(t, []any{id, processlog.BulkSubject(1), "requeue", true}, []any{*page.Records[i].Bulk, page.Records[i].Subject, page.Records[i].Action, page.Records[i].EntryID.IsZero()})
	notes, err := t.Store.History(t.ctx, processlog.ID{})
	require.NoError(t, err)
	assert.Empty(t, notes, "an action on entries is no action on the whole log")
}

func (t *storeTest) batchesOfAnActionAreFoundByItsID() {
	a, b := t.die("refund", caseDraft(1, 1, "CNY")), t.die("refund", caseDraft(1, 1, "CNY"))
	id, _, err := t.ops().ChangeBulk(t.ctx, []processlog.Version{seenAs(a)}, annRequeues(), newBatch("a"))
	require.NoError(t, err)
	other, _, err := t.ops().ChangeBulk(t.ctx, nil, annRequeues(), newBatch("b"))
	require.NoError(t, err)
	second := newBatch("a")
	second.ID, second.Actor = id, "bob"
	same, _, err := t.ops().ChangeBulk(t.ctx, []processlog.Version{seenAs(b)}, annRequeues(), second)
	require.NoError(t, err)
	assert.Equal(t, id, same, "a later batch belongs to the same action")

	batches, err := t.ops().Bulk(t.ctx, id)
	require.NoError(t, err)
	require.Len(t, batches, 2)
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
