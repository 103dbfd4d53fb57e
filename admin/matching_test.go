package admin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/processlog"
)

func (b *bed) diesOften(businessType string, n int) (ids []compensator.EntryID) {
	b.t.Helper()
	for i := range n {
		e := b.die(businessType, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint(businessType, " ", i))})
		require.Equal(b.t, compensator.Dead, e.State)
		ids = append(ids, e.ID)
	}
	return ids
}

func (b *bed) visits(id compensator.EntryID) int {
	b.t.Helper()
	history, err := admin.Of(b.c).History(b.t.Context(), id)
	require.NoError(b.t, err)
	return len(history)
}

func (b *bed) followed(d *admin.Admin, id admin.BulkID) admin.BulkView {
	b.t.Helper()
	view, err := d.Bulk(b.t.Context(), mei, id)
	require.NoError(b.t, err)
	return view
}

var deadRefunds = admin.Search{Filter: admin.Filter{BusinessType: refundType, States: []compensator.State{compensator.Dead}}}

var requeueAll = admin.Change{Action: admin.Requeue, Why: why}

func TestActionOnAllThatMatchVisitsEachEntryOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: everything})
	ids := b.diesOften(refundType, 2105)
	found, err := d.Matching(t.Context(), mei, admin.Requeue, deadRefunds)
	require.NoError(t, err)
	assert.Equal(t, admin.Matching{N: 2106, Sums: []compensator.Amount{{Minor: 2106 * 12900, Currency: "CNY"}}}, found)

	id, err := d.StartMatching(t.Context(), mei, requeueAll, deadRefunds, admin.BulkOptions{})
	require.NoError(t, err)
	view := b.followed(d, id)
	assert.Equal(t, []any{2106, 500, 1606, true}, []any{view.Total, view.Changed, view.Left, view.MayContinue})
	assert.Equal(t, map[admin.BulkOutcome]int{admin.BulkWaiting: 500}, view.Outcomes)
	compensatortest.Attempt(t, b.c, ids[0])
	require.NoError(t, admin.Of(b.c).SettleManually(t.Context(), ids[2104], admin.AuditInfo{Actor: "bob", Reason: "cash"}))
	later := b.die(refundType, compensator.Options{IdempotencyKey: "later"})

	for range 2 {
		require.NoError(t, d.ContinueBulk(t.Context(), mei, id))
		view = b.followed(d, id)
		assert.Equal(t, []any{2105, 0, false, 0}, []any{view.Changed, view.Left, view.MayContinue, view.NotFollowed})
		assert.Equal(t, map[admin.BulkOutcome]int{admin.BulkDead: 1, admin.BulkWaiting: 2104}, view.Outcomes)
	}
	for _, id := range append(ids, b.dead.ID) {
		require.Equal(t, 1, b.visits(id))
	}
	assert.Zero(t, b.visits(later.ID))
	assert.Zero(t, b.visits(b.otherDead.ID))
	batches, err := b.store.Bulk(t.Context(), id)
	require.NoError(t, err)
	assert.Len(t, batches, 5, "each batch has its record")
	for _, batch := range batches {
		assert.Equal(t, []any{"mei", "[OPS-988] PSP is back"}, []any{batch.Actor, batch.Reason})
		assert.LessOrEqual(t, len(batch.Entries)+len(batch.Skipped), admin.MaxEntries)
	}
}

// Every second batch fails, as after a kill.
func TestActionOnAllThatMatchGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: everything})
	ids := append(b.diesOften(refundType, 1200), b.dead.ID)
	killed, fails := errors.New("killed"), true
	b.store.batch = func(batch processlog.BulkBatch) error {
		if fails = !fails; fails && batch.Follows > 0 {
			return killed
		}
		return nil
	}
	id, err := d.StartMatching(t.Context(), mei, requeueAll, deadRefunds, admin.BulkOptions{})
	require.NoError(t, err)
	var changed []int
	for b.followed(d, id).Left > 0 {
		changed = append(changed, b.followed(d, id).Changed)
		if err := d.ContinueBulk(t.Context(), mei, id); err != nil {
			require.ErrorIs(t, err, killed)
		}
	}
	assert.Equal(t, []int{500, 500, 1000}, changed, "each continuation but the last one is killed at a batch")
	assert.Equal(t, 1201, b.followed(d, id).Changed)
	for _, id := range ids {
		require.Equal(t, 1, b.visits(id))
	}
}

func TestActionOnAllThatMatchIsContinuedByOne(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: everything})
	ids := append(b.diesOften(refundType, 700), b.dead.ID)
	ch := requeueAll
	id, err := d.StartMatching(t.Context(), mei, ch, deadRefunds, admin.BulkOptions{TryFirst: true})
	require.NoError(t, err)
	view := b.followed(d, id)
	assert.Equal(t, []any{701, 1, 700, admin.BulkWaiting}, []any{view.Total, view.Changed, view.Left, view.Tried})
	bob := admin.Actor{ID: "bob"}
	b.store.batch = func(processlog.BulkBatch) error {
		b.store.batch = nil
		return d.ContinueBulk(t.Context(), bob, id)
	}
	require.ErrorIs(t, d.ContinueBulk(t.Context(), mei, id), admin.ErrContinued)
	view = b.followed(d, id)
	assert.Equal(t, []any{701, 0, true}, []any{view.Changed, view.Left, view.Tried == ""})
	assert.Empty(t, view.LeftOut)
	for _, id := range ids {
		require.Equal(t, 1, b.visits(id))
	}
}

func TestActionOnAllThatMatchLeavesOutWhatWasNotChecked(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: everything})
	ids := b.diesOften(refundType, 4)
	b.store.keeps = func(c *admin.Case) {
		if c.EntryID == ids[0] {
			c.Kind = admin.CaseUnknown
		}
	}
	search := deadRefunds
	search.Failure = b.caseOf().Fingerprint
	found, err := d.Matching(t.Context(), mei, admin.SettleManually, search)
	require.NoError(t, err)
	assert.Equal(t, []int{5, 1, 0}, []int{found.N, found.Unknown, found.NotAllowed})
	id, err := d.StartMatching(t.Context(), mei, admin.Change{Action: admin.SettleManually, Why: why}, search, admin.BulkOptions{TryFirst: true})
	require.NoError(t, err)
	view := b.followed(d, id)
	assert.Equal(t, []any{1, 4, admin.BulkSettled}, []any{view.Changed, view.Left, view.Tried})
	require.NoError(t, d.ContinueBulk(t.Context(), mei, id))
	view = b.followed(d, id)
	assert.Equal(t, []any{4, 0, map[string]int{"unknown": 1}}, []any{view.Changed, view.Left, view.LeftOut})
	assert.Equal(t, []admin.BulkSkip{{ID: ids[0], Why: "unknown"}}, view.Skipped)

	id, err = d.StartMatching(t.Context(), mei, admin.Change{Action: admin.SettleManually, Why: why, Checked: true}, search, admin.BulkOptions{})
	require.NoError(t, err)
	assert.Equal(t, 1, b.followed(d, id).Changed)
	none, err := d.StartMatching(t.Context(), mei, admin.Change{Action: admin.SettleManually, Why: why, Checked: true}, search, admin.BulkOptions{})
	require.NoError(t, err)
	assert.Zero(t, none, "no entry matches any more")
	search.Failure, search.Filter.States = admin.Fingerprint{}, []compensator.State{compensator.SettledManually}
	id, err = d.StartMatching(t.Context(), mei, requeueAll, search, admin.BulkOptions{})
	require.NoError(t, err)
	view = b.followed(d, id)
	assert.Equal(t, []any{0, 0, map[string]int{"finished": 5}}, []any{view.Changed, view.Left, view.LeftOut})
}

func TestActionOnAllThatMatchIsFinishedWithOneRead(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: everything})
	ids := append(b.diesOften(refundType, 2600), b.dead.ID)
	begin := func() admin.BulkID {
		id, err := d.StartMatching(t.Context(), mei, requeueAll, deadRefunds, admin.BulkOptions{TryFirst: true})
		require.NoError(t, err)
		return id
	}
	id := begin()
	b.store.bulkReads.Store(0)
	var reports []admin.BulkProgress
	require.NoError(t, d.FinishBulk(t.Context(), mei, id, func(p admin.BulkProgress) { reports = append(reports, p) }))
	assert.EqualValues(t, 1, b.store.bulkReads.Load())
	assert.Equal(t, []admin.BulkProgress{{Changed: 1, Left: 2600}, {Changed: 2001, Left: 600}, {Changed: 2601}}, reports)
	for _, id := range ids {
		require.Equal(t, 1, b.visits(id))
	}
	require.NoError(t, d.FinishBulk(t.Context(), mei, id, func(p admin.BulkProgress) { assert.Equal(t, admin.BulkProgress{Changed: 2601}, p) }))

	other, _, err := d.StartBulk(t.Context(), mei, admin.Change{Action: admin.Requeue, Entries: []admin.Seen{{ID: b.otherDead.ID, Version: b.otherDead.Version}}, Why: why}, admin.BulkOptions{})
	require.NoError(t, err)
	require.ErrorAs(t, d.FinishBulk(t.Context(), mei, other, func(admin.BulkProgress) {}), new(*compensator.FieldError))
	b.diesOften(mailType, 2)
	id, err = d.StartMatching(t.Context(), mei, requeueAll, admin.Search{Filter: admin.Filter{BusinessType: mailType, States: []compensator.State{compensator.Dead}}}, admin.BulkOptions{TryFirst: true})
	require.NoError(t, err)
	require.ErrorIs(t, d.FinishBulk(t.Context(), mei, id, func(admin.BulkProgress) { require.NoError(t, d.StopBulk(t.Context(), admin.Actor{ID: "bob"}, id)) }), admin.ErrContinued)
	assert.Equal(t, 1, b.followed(d, id).Changed)
}

func TestStoppedActionVisitsNoFurtherEntry(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: everything})
	b.diesOften(refundType, 3)
	id, err := d.StartMatching(t.Context(), mei, requeueAll, deadRefunds, admin.BulkOptions{TryFirst: true})
	require.NoError(t, err)
	bob := admin.Actor{ID: "bob"}
	for range 2 {
		require.NoError(t, d.StopBulk(t.Context(), bob, id))
	}
	require.NoError(t, d.ContinueBulk(t.Context(), mei, id))
	view := b.followed(d, id)
	assert.Equal(t, []any{1, 0, "bob", false}, []any{view.Changed, view.Left, view.StoppedBy, view.MayContinue})
	other, _, err := d.StartBulk(t.Context(), mei, admin.Change{Action: admin.Requeue, Entries: []admin.Seen{{ID: b.otherDead.ID, Version: b.otherDead.Version}}, Why: why}, admin.BulkOptions{})
	require.NoError(t, err)
	var field *compensator.FieldError
	require.ErrorAs(t, d.StopBulk(t.Context(), mei, other), &field)
	_, err = d.Matching(t.Context(), mei, admin.Requeue, admin.Search{Filter: admin.Filter{BusinessType: refundType}})
	require.ErrorAs(t, err, &field)
	assert.Equal(t, "states", field.Field)
	require.ErrorIs(t, d.StopBulk(t.Context(), mei, admin.BulkID{Record: 1 << 40, Secret: id.Secret}), compensator.ErrNotFound)
}

func TestFormThatIsSentTwiceActsOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: everything})
	ids := append(b.diesOften(refundType, 2), b.dead.ID)
	all := func(a admin.Actor, key string) admin.BulkID {
		id, err := d.StartMatching(t.Context(), a, requeueAll, deadRefunds, admin.BulkOptions{Key: key})
		require.NoError(t, err)
		return id
	}
	requireVisits := func(n int) {
		t.Helper()
		for _, id := range ids {
			require.Equal(t, n, b.visits(id))
		}
	}
	first := all(mei, "0123456789abcdef")
	assert.Equal(t, first, all(mei, "0123456789abcdef"), "no entry matches any longer")
	for _, id := range ids {
		compensatortest.Attempt(t, b.c, id)
	}
	assert.Equal(t, first, all(mei, "0123456789abcdef"), "the entries match again")
	requireVisits(1)
	assert.NotEqual(t, first, all(admin.Actor{ID: "bob"}, "0123456789abcdef"), "another person's form")
	requireVisits(2)
	for _, id := range ids {
		compensatortest.Attempt(t, b.c, id)
	}

	var between admin.BulkID
	b.store.batch = func(processlog.BulkBatch) error {
		b.store.batch = nil
		between = all(mei, "0123456789abcdeX")
		return nil
	}
	assert.Equal(t, all(mei, "0123456789abcdeX"), between)
	requireVisits(3)
	for _, id := range ids {
		compensatortest.Attempt(t, b.c, id)
	}

	ch := requeueAll
	for _, row := range b.store.Rows() {
		if slices.Contains(ids, row.ID) {
			ch.Entries = append(ch.Entries, admin.Seen{ID: row.ID, Version: row.Version})
		}
	}
	chosen := func() admin.BulkID {
		id, _, err := d.StartBulk(t.Context(), mei, ch, admin.BulkOptions{TryFirst: true, Key: "0123456789abcdeY"})
		require.NoError(t, err)
		return id
	}
	b.store.batch = func(processlog.BulkBatch) error {
		b.store.batch = nil
		between = chosen()
		return nil
	}
	assert.Equal(t, chosen(), between)
	assert.Equal(t, chosen(), between)
	assert.Equal(t, []any{1, 2}, []any{b.followed(d, between).Changed, b.followed(d, between).Left}, "a second trial has not begun")
	_, err := d.StartMatching(t.Context(), mei, requeueAll, deadRefunds, admin.BulkOptions{Key: "short"})
	require.ErrorAs(t, err, new(*compensator.FieldError))
}

func TestActionOnAllThatMatchObeysRights(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	lacks := map[string]func(right admin.Right, on admin.Subject) bool{}
	d := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, a admin.Actor, right admin.Right, on admin.Subject) bool {
		return lacks[a.ID] == nil || !lacks[a.ID](right, on)
	})})
	b.diesOften(refundType, 2)
	bob, search := admin.Actor{ID: "bob"}, admin.Search{Filter: admin.Filter{States: []compensator.State{compensator.Dead}}}
	lacks["bob"] = func(right admin.Right, _ admin.Subject) bool { return right == admin.Requeue }
	before := b.standing()
	_, err := d.StartMatching(t.Context(), bob, requeueAll, search, admin.BulkOptions{})
	require.ErrorIs(t, err, admin.ErrNotAllowed)
	assert.Equal(t, before, b.standing())
	assert.Len(t, b.auditLog(true), 1)

	id, err := d.StartMatching(t.Context(), mei, requeueAll, search, admin.BulkOptions{TryFirst: true})
	require.NoError(t, err)
	before = b.standing()
	view, err := d.Bulk(t.Context(), bob, id)
	require.NoError(t, err)
	assert.False(t, view.MayContinue)
	require.ErrorIs(t, d.ContinueBulk(t.Context(), bob, id), admin.ErrNotAllowed)
	require.ErrorIs(t, d.StopBulk(t.Context(), bob, id), admin.ErrNotAllowed)
	lacks["bob"] = func(right admin.Right, on admin.Subject) bool { return right == admin.Requeue && on.Amount.Minor > 0 }
	require.ErrorIs(t, d.ContinueBulk(t.Context(), bob, id), admin.ErrNotAllowed, "he must not spoil a batch for others")
	for name, lack := range map[string]func(right admin.Right, on admin.Subject) bool{
		"a type":        func(_ admin.Right, on admin.Subject) bool { return on.Type == mailType },
		"the audit log": func(right admin.Right, _ admin.Subject) bool { return right == admin.SeeAuditLog },
	} {
		lacks["bob"] = lack
		_, err = d.Bulk(t.Context(), bob, id)
		require.ErrorIs(t, err, compensator.ErrNotFound, name)
		require.ErrorIs(t, d.ContinueBulk(t.Context(), bob, id), compensator.ErrNotFound, name)
		require.ErrorIs(t, d.StopBulk(t.Context(), bob, id), compensator.ErrNotFound, name)
	}
	assert.Equal(t, before, b.standing())

	lacks["mei"] = func(right admin.Right, on admin.Subject) bool { return right == admin.Requeue && on.Type == mailType }
	require.NoError(t, d.ContinueBulk(t.Context(), mei, id))
	view = b.followed(d, id)
	assert.Equal(t, []any{3, 0, map[string]int{"not_allowed": 1}}, []any{view.Changed, view.Left, view.LeftOut})
	hidden := func(_ admin.Right, on admin.Subject) bool { return on.Type == refundType }
	lacks["mei"] = hidden
	found, err := d.Matching(t.Context(), mei, admin.Requeue, search)
	require.NoError(t, err)
	assert.Equal(t, 1, found.N, "entries of a hidden type do not match")
	id, err = d.StartMatching(t.Context(), mei, requeueAll, search, admin.BulkOptions{})
	require.NoError(t, err)
	view = b.followed(d, id)
	assert.Equal(t, []any{1, []string{mailType}}, []any{view.Changed, view.Search.Filter.BusinessTypes})
	assert.True(t, slices.ContainsFunc(b.store.Rows(), func(row processlog.Row) bool { return row.ID == b.otherDead.ID && row.State == compensator.Pending }))
	_, err = d.StartMatching(t.Context(), mei, requeueAll, deadRefunds, admin.BulkOptions{})
	require.ErrorIs(t, err, admin.ErrNotAllowed)
	text := deadRefunds
	text.Filter.LastError = "card"
	lacks["mei"] = func(right admin.Right, _ admin.Subject) bool { return right == admin.SeeErrors }
	_, err = d.Matching(t.Context(), mei, admin.Requeue, text)
	require.ErrorIs(t, err, admin.ErrNotAllowed)
	readOnly := b.admin(admin.Options{Access: everything, ReadOnly: true})
	_, err = readOnly.StartMatching(t.Context(), mei, requeueAll, search, admin.BulkOptions{})
	require.ErrorIs(t, err, admin.ErrReadOnly)
	require.ErrorIs(t, readOnly.StopBulk(t.Context(), mei, id), admin.ErrReadOnly)
}
