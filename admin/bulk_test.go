package admin_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/processlog"
)

func (b *bed) dieMany(businessType string, n int) (seen []admin.Seen) {
	b.t.Helper()
	for i := range n {
		e := b.die(businessType, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(businessType + "-many-" + string(rune('a'+i)))})
		require.Equal(b.t, compensator.Dead, e.State)
		seen = append(seen, admin.Seen{ID: e.ID, Version: e.Version})
	}
	return seen
}

func TestActionOnManyFollowsItsEntries(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: everything})
	seen := b.dieMany(refundType, 5)
	ch := admin.Change{Action: admin.Requeue, Entries: append(seen, admin.Seen{ID: b.dead.ID, Version: b.dead.Version + 7}), Why: why}
	id, answers, err := d.StartBulk(t.Context(), mei, ch, admin.BulkOptions{})
	require.NoError(t, err)
	require.Len(t, answers, 6)
	require.ErrorIs(t, answers[5], admin.ErrChanged)
	for _, answer := range answers[:5] {
		require.NoError(t, answer)
	}
	view, err := d.Bulk(t.Context(), mei, id)
	require.NoError(t, err)
	assert.Equal(t, []any{admin.Requeue, "mei", "[OPS-988] PSP is back", 6, 5}, []any{view.Action, view.Actor, view.Reason, view.Total, view.Changed})
	assert.Equal(t, map[admin.BulkOutcome]int{admin.BulkWaiting: 5}, view.Outcomes)
	assert.Equal(t, []admin.BulkSkip{{ID: b.dead.ID, Why: processlog.BulkChanged}}, view.Skipped)
	assert.True(t, view.Open())

	again, err := d.Lines(t.Context(), mei, []compensator.EntryID{seen[0].ID})
	require.NoError(t, err)
	require.Equal(t, compensator.Pending, again[0].Entry.State)
	compensatortest.Attempt(t, b.c, seen[0].ID)
	ran, err := d.Lines(t.Context(), mei, []compensator.EntryID{seen[0].ID})
	require.NoError(t, err)
	require.Equal(t, compensator.Dead, ran[0].Entry.State)
	_, err = b.c.Cancel(t.Context(), seen[1].ID)
	require.NoError(t, err)
	settle := admin.Change{Action: admin.SettleManually, Entries: []admin.Seen{{ID: seen[0].ID, Version: ran[0].Entry.Version}}, Why: why}
	view, err = d.Bulk(t.Context(), mei, id)
	require.NoError(t, err)
	assert.Equal(t, map[admin.BulkOutcome]int{admin.BulkDead: 1, admin.BulkOverridden: 1, admin.BulkWaiting: 3}, view.Outcomes)
	assert.Equal(t, []compensator.EntryID{seen[0].ID}, view.Entries[admin.BulkDead])
	_, err = d.Change(t.Context(), admin.Actor{ID: "bob"}, settle)
	require.NoError(t, err)
	view, err = d.Bulk(t.Context(), mei, id)
	require.NoError(t, err)
	assert.Equal(t, map[admin.BulkOutcome]int{admin.BulkOverridden: 2, admin.BulkWaiting: 3}, view.Outcomes, "another person has settled it since")
	require.NoError(t, admin.Of(b.c).Requeue(t.Context(), seen[0].ID, admin.RequeueOptions{AuditInfo: admin.AuditInfo{Actor: "bob", Reason: "cash came back"}}))
	view, err = d.Bulk(t.Context(), mei, id)
	require.NoError(t, err)
	assert.Equal(t, map[admin.BulkOutcome]int{admin.BulkOverridden: 2, admin.BulkWaiting: 3}, view.Outcomes, "it waits now, but not because of this action")
}

// If a person may see no entry of an action, Bulk must return ErrNotFound, as it does for an action that does not
// exist. Otherwise the answer would reveal the action.
func TestActionOnManyIsShownByRight(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	hidden, noLog := "", false
	d := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, a admin.Actor, right admin.Right, on admin.Subject) bool {
		return hidden != "*" && on.Type != hidden && !(noLog && right == admin.SeeAuditLog)
	})})
	seen := append(b.dieMany(refundType, 2), b.dieMany(mailType, 1)...)
	id, _, err := d.StartBulk(t.Context(), mei, admin.Change{Action: admin.SettleManually, Entries: seen, Why: why}, admin.BulkOptions{})
	require.NoError(t, err)
	bob := admin.Actor{ID: "bob"}
	all, err := d.Bulk(t.Context(), bob, id)
	require.NoError(t, err)
	assert.Equal(t, map[admin.BulkOutcome]int{admin.BulkSettled: 3}, all.Outcomes)
	assert.False(t, all.Open())
	hidden = mailType
	some, err := d.Bulk(t.Context(), bob, id)
	require.NoError(t, err)
	assert.Equal(t, map[admin.BulkOutcome]int{admin.BulkSettled: 2}, some.Outcomes)
	assert.Equal(t, []int{3, 2}, []int{all.Total, some.Total}, "the total must not count what is hidden")
	_, unknown := d.Bulk(t.Context(), bob, admin.BulkID{Record: id.Record + 5, Secret: id.Secret})
	require.ErrorIs(t, unknown, compensator.ErrNotFound)
	hidden = "*"
	_, err = d.Bulk(t.Context(), bob, id)
	require.ErrorIs(t, err, compensator.ErrNotFound)
	hidden, noLog = "", true
	_, err = d.Bulk(t.Context(), bob, id)
	require.ErrorIs(t, err, compensator.ErrNotFound)
	_, err = d.Bulk(t.Context(), mei, id)
	require.NoError(t, err, "people see what they did themselves without the audit log")
}

func TestActionWithoutARightIsNotRecorded(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, right admin.Right, _ admin.Subject) bool {
		return right == admin.SeeEntries
	})})
	seen := b.dieMany(refundType, 2)
	before := b.standing()
	id, answers, err := d.StartBulk(t.Context(), mei, admin.Change{Action: admin.Requeue, Entries: seen, Why: why}, admin.BulkOptions{})
	require.NoError(t, err)
	assert.Equal(t, admin.BulkID{}, id)
	for _, answer := range answers {
		require.ErrorIs(t, answer, admin.ErrNotAllowed)
	}
	assert.Equal(t, before, b.standing())
	readOnly := b.admin(admin.Options{Access: everything, ReadOnly: true})
	_, _, err = readOnly.StartBulk(t.Context(), mei, admin.Change{Action: admin.Requeue, Entries: seen, Why: why}, admin.BulkOptions{})
	require.ErrorIs(t, err, admin.ErrReadOnly)
}

func TestOneEntryIsTriedBeforeTheOthers(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: everything})
	seen := b.dieMany(refundType, 4)
	slices.Reverse(seen)
	id, _, err := d.StartBulk(t.Context(), mei, admin.Change{Action: admin.Requeue, Entries: seen, Why: why}, admin.BulkOptions{TryFirst: true})
	require.NoError(t, err)
	view, err := d.Bulk(t.Context(), mei, id)
	require.NoError(t, err)
	require.True(t, view.MayContinue)
	assert.Equal(t, []any{4, 1, 3, admin.BulkWaiting}, []any{view.Total, view.Changed, view.Left, view.Tried})
	assert.Equal(t, []compensator.EntryID{seen[3].ID}, view.Entries[admin.BulkWaiting], "the oldest")
	compensatortest.Attempt(t, b.c, seen[3].ID)
	view, err = d.Bulk(t.Context(), mei, id)
	require.NoError(t, err)
	assert.Equal(t, admin.BulkDead, view.Tried)

	require.NoError(t, admin.Of(b.c).SettleManually(t.Context(), seen[0].ID, admin.AuditInfo{Actor: "bob", Reason: "cash"}))
	for range 2 {
		require.NoError(t, d.ContinueBulk(t.Context(), admin.Actor{ID: "bob"}, id))
		view, err = d.Bulk(t.Context(), mei, id)
		require.NoError(t, err)
		assert.Equal(t, []any{4, 3, 0, true}, []any{view.Total, view.Changed, view.Left, view.Tried == ""})
		assert.Equal(t, map[admin.BulkOutcome]int{admin.BulkDead: 1, admin.BulkWaiting: 2}, view.Outcomes)
		assert.Equal(t, []admin.BulkSkip{{ID: seen[0].ID, Why: processlog.BulkChanged}}, view.Skipped)
	}
	history, err := admin.Of(b.c).History(t.Context(), seen[1].ID)
	require.NoError(t, err)
	require.Len(t, history, 1)
	assert.Equal(t, []string{"bob", "[OPS-988] PSP is back"}, []string{history[0].Actor, history[0].Reason}, "the reason stays, and who went on is on record")
}

func TestAnotherEntryIsTriedBeforeTheOthers(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(b *bed, d *admin.Admin, seen []admin.Seen) (admin.BulkID, error){
		"chosen": func(b *bed, d *admin.Admin, seen []admin.Seen) (admin.BulkID, error) {
			id, _, err := d.StartBulk(t.Context(), mei, admin.Change{Action: admin.Requeue, Entries: seen, Why: why}, admin.BulkOptions{TryFirst: true})
			return id, err
		},
		"all that match": func(b *bed, d *admin.Admin, seen []admin.Seen) (admin.BulkID, error) {
			return d.StartMatching(t.Context(), mei, admin.Change{Action: admin.Requeue, Why: why}, admin.Search{Filter: admin.Filter{States: []compensator.State{compensator.Dead}, BusinessType: mailType}}, admin.BulkOptions{TryFirst: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			d := b.admin(admin.Options{Access: everything})
			require.NoError(t, admin.Of(b.c).SettleManually(t.Context(), b.otherDead.ID, admin.AuditInfo{Actor: "bob", Reason: "cash"}))
			seen := b.dieMany(mailType, 6)
			id, err := begin(b, d, seen)
			require.NoError(t, err)
			compensatortest.Attempt(t, b.c, seen[0].ID)
			view := b.followed(d, id)
			require.Equal(t, []any{1, 5, admin.BulkDead}, []any{view.Changed, view.Left, view.Tried})
			first := view.LastBatch
			require.Positive(t, first)

			require.NoError(t, admin.Of(b.c).SettleManually(t.Context(), seen[1].ID, admin.AuditInfo{Actor: "bob", Reason: "cash"}))
			bob := admin.Actor{ID: "bob"}
			require.NoError(t, d.TryAnother(t.Context(), bob, id, first))
			for range 2 {
				require.ErrorIs(t, d.TryAnother(t.Context(), bob, id, first), admin.ErrContinued, "a form that is sent twice tries one entry")
			}
			view = b.followed(d, id)
			assert.Equal(t, []any{2, admin.BulkWaiting}, []any{view.Changed, view.Tried}, "the entry that was tried last")
			assert.Equal(t, []admin.BulkTrial{{ID: seen[0].ID, Outcome: admin.BulkDead}, {ID: seen[2].ID, Outcome: admin.BulkWaiting}}, view.Trials, "the second one was settled meanwhile")
			assert.Greater(t, view.LastBatch, first)
			history, err := admin.Of(b.c).History(t.Context(), seen[2].ID)
			require.NoError(t, err)
			require.Len(t, history, 1)
			assert.Equal(t, []string{"bob", "[OPS-988] PSP is back"}, []string{history[0].Actor, history[0].Reason})
			require.NoError(t, d.TryAnother(t.Context(), mei, id, view.LastBatch))
			assert.Len(t, b.followed(d, id).Trials, 3)

			last := b.followed(d, id).LastBatch
			require.NoError(t, d.ContinueBulk(t.Context(), bob, id))
			view = b.followed(d, id)
			assert.Equal(t, []any{5, 0, true}, []any{view.Changed, view.Left, view.Tried == ""})
			assert.Empty(t, view.Trials)
			for _, number := range []uint64{last, view.LastBatch} {
				require.ErrorIs(t, d.TryAnother(t.Context(), mei, id, number), admin.ErrContinued, "the others have been changed")
			}
			for _, e := range slices.Delete(slices.Clone(seen), 1, 2) {
				require.Equal(t, 1, b.visits(e.ID), "each entry is changed once")
			}
		})
	}
}

func TestFewEntriesAreTriedBeforeTheOthers(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: everything})
	seen := b.dieMany(refundType, 14)
	id, _, err := d.StartBulk(t.Context(), mei, admin.Change{Action: admin.Requeue, Entries: seen, Why: why}, admin.BulkOptions{TryFirst: true})
	require.NoError(t, err)
	for range 9 {
		require.NoError(t, d.TryAnother(t.Context(), mei, id, b.followed(d, id).LastBatch))
	}
	view := b.followed(d, id)
	var field *compensator.FieldError
	require.ErrorAs(t, d.TryAnother(t.Context(), mei, id, view.LastBatch), &field)
	assert.Equal(t, []any{10, 4, false}, []any{len(view.Trials), view.Left, view.MayTryAnother()})
}
