package suite

import (
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// The boolean of each promise is storePromise.writers.
var operationPromises = []storePromise{
	{"ChangeAllDoesClosesAndRecordsInOne", false, ofOperations((*storeTest).changeAllDoesClosesAndRecordsInOne)},
	{"BlockingEntryIsNamed", false, ofOperations((*storeTest).blockingEntryIsNamed)},
	{"ChangeAllTakesWhatStandsAsItWasSeen", false, ofOperations((*storeTest).changeAllTakesWhatStandsAsItWasSeen)},
	{"ChangeAllWaitsForNobody", true, ofOperations((*storeTest).changeAllWaitsForNobody)},
	{"BatchIsRecordedWithItsChange", false, ofOperations((*storeTest).batchIsRecordedWithItsChange)},
	{"BatchesOfAnActionAreFoundByItsID", false, ofOperations((*storeTest).batchesOfAnActionAreFoundByItsID)},
	{"BatchFollowsTheLastOneOnly", false, ofOperations((*storeTest).batchFollowsTheLastOneOnly)},
	{"OneOfManyBatchesFollowsTheLastOne", true, ofOperations((*storeTest).oneOfManyBatchesFollowsTheLastOne)},
	{"ActionWithASecretBeginsOnce", true, ofOperations((*storeTest).actionWithASecretBeginsOnce)},
	{"IDsOfAllThatMatchAreInOrder", false, ofOperations((*storeTest).idsOfAllThatMatchAreInOrder)},
	{"OutlinesAreRowsWithoutContent", false, ofOperations((*storeTest).outlinesAreRowsWithoutContent)},
	{"TypesAreThoseOfLogAndOperations", false, ofOperations((*storeTest).typesAreThoseOfLogAndOperations)},
	{"AuditLogTellsAllNewestFirst", false, ofOperations((*storeTest).auditLogTellsAllNewestFirst)},
	{"ErasureReachesCaseAndOperations", false, ofOperations((*storeTest).erasureReachesCaseAndOperations)},
	{"SettingIsPutAsItWasSeen", false, ofOperations((*storeTest).settingIsPutAsItWasSeen)},
}

func ofOperations(promise func(*storeTest)) func(*storeTest) {
	return func(t *storeTest) {
		if _, is := t.Store.(processlog.Operations); !is {
			t.Skip("the store does not implement processlog.Operations")
		}
		promise(t)
	}
}

func (t *storeTest) blockingEntryIsNamed() {
	a, b := t.commitWithPositions("a", 3), t.commitWithPositions("b", 1)
	by := func(row processlog.Row, dead bool) processlog.ID {
		id, err := t.ops().BlockedBy(t.ctx, "serial", row.ID, dead)
		require.NoError(t, err)
		return id
	}
	none := processlog.ID{}
	assert.Equal(t, none, by(a[0], true))
	assert.Equal(t, a[0].ID, by(a[1], true))
	assert.Equal(t, a[0].ID, by(a[2], true), "the first entry of the key, not the one before")
	assert.Equal(t, none, by(b[0], true), "another key")
	assert.Equal(t, none, by(t.committed("serial", 1)[0], true), "an entry without a key")
	t.settleTo(a[0], processlog.Dead)
	assert.Equal(t, a[0].ID, by(a[1], true), "a dead entry blocks")
	assert.Equal(t, none, by(a[1], false), "a dead entry does not block")
	assert.Equal(t, a[1].ID, by(a[2], false))
	t.settleTo(a[1], processlog.Succeeded)
	assert.Equal(t, none, by(a[2], false))
	id, err := t.ops().BlockedBy(t.ctx, "another", a[2].ID, true)
	require.NoError(t, err)
	assert.Equal(t, none, id, "an entry of another type")
}

func (t *storeTest) ops() processlog.Operations { return t.Store.(processlog.Operations) }

func (t *storeTest) changeAllDoesClosesAndRecordsInOne() {
	for _, action := range []processlog.Action{processlog.ActionRequeue, processlog.ActionSettleManually, processlog.ActionCancel, processlog.ActionComplete} {
		row := t.die("refund", caseDraft(1, 100, "CNY"))
		change := newChange(nil, action)
		change.Actor, change.Reason = "ann", "because"
		answers, err := t.ops().ChangeAll(t.ctx, []processlog.Version{seenAs(row)}, change)
		require.NoError(t, err)
		require.NoError(t, answers[0].Err, "%s", action)
		assert.NotEqual(t, processlog.Dead, t.load(row.ID).State)
		c, found := t.caseOf(row.ID)
		assert.True(t, found && !c.ClosedAt.IsZero(), "%s closes the case", action)
		history, err := t.Store.History(t.ctx, row.ID)
		require.NoError(t, err)
		require.Len(t, history, 1, "%s by a person keeps the case open", action)
		assert.Equal(t, []any{action, "ann", "because", processlog.Dead}, []any{history[0].Action, history[0].Actor, history[0].Reason, history[0].Before.State})
	}
	row := t.inState(processlog.Retrying)
	change := newChange(nil, processlog.ActionReschedule)
	change.Actor, change.Reason, change.Delay = "ann", "because", time.Hour
	answers, err := t.ops().ChangeAll(t.ctx, []processlog.Version{seenAs(row)}, change)
	require.NoError(t, err)
	require.NoError(t, answers[0].Err)
	history, err := t.Store.History(t.ctx, row.ID)
	require.NoError(t, err)
	require.Len(t, history, 1)
}

func (t *storeTest) changeAllTakesWhatStandsAsItWasSeen() {
	moved, held, gone := t.die("refund", caseDraft(1, 1, "CNY")), t.die("refund", caseDraft(1, 1, "CNY")), t.insertOne("refund")
	ended := t.inState(processlog.Succeeded)
	seen := []processlog.Version{seenAs(moved), seenAs(held), seenAs(ended), seenAs(gone)}
	seen[3].ID = processlog.RowID(gone.ID.Row() + 1000)
	t.change(moved.ID, processlog.ActionCancel)
	answers, err := t.ops().ChangeAll(t.ctx, seen, newChange(nil, processlog.ActionSettleManually))
	require.NoError(t, err)
	require.ErrorIs(t, answers[0].Err, processlog.ErrChanged)
	require.NoError(t, answers[1].Err)
	var refused *processlog.StateError
	require.ErrorAs(t, answers[2].Err, &refused)
	require.ErrorIs(t, answers[3].Err, processlog.ErrNotFound)
	t.openCase(moved.ID)
	again, err := t.ops().ChangeAll(t.ctx, seen[1:2], newChange(nil, processlog.ActionSettleManually))
	require.NoError(t, err)
	require.ErrorIs(t, again[0].Err, processlog.ErrChanged, "a repeated call changes nothing")
	cancelled := t.inState(processlog.Cancelled)
	change := newChange(nil, processlog.ActionCancel)
	change.Actor = "ann"
	already, err := t.ops().ChangeAll(t.ctx, []processlog.Version{seenAs(cancelled)}, change)
	require.NoError(t, err)
	require.NoError(t, already[0].Err, "what is so already")
	assert.Equal(t, cancelled.Version, t.load(cancelled.ID).Version)
	history, err := t.Store.History(t.ctx, cancelled.ID)
	require.NoError(t, err)
	assert.Empty(t, history)
}

func (t *storeTest) changeAllWaitsForNobody() {
	held, free := t.die("refund", caseDraft(1, 1, "CNY")), t.die("refund", caseDraft(1, 1, "CNY"))
	tx := t.begin()
	_, err := t.Store.Change(t.ctx, tx, false, newChange(held.ID, processlog.ActionCancel))
	require.NoError(t, err)
	answers, err := t.ops().ChangeAll(t.ctx, []processlog.Version{seenAs(held), seenAs(free)}, newChange(nil, processlog.ActionRequeue))
	require.NoError(t, err)
	require.ErrorIs(t, answers[0].Err, processlog.ErrBusy)
	require.NoError(t, answers[1].Err)
	t.openCase(held.ID)
}

func (t *storeTest) outlinesAreRowsWithoutContent() {
	d := t.draft("refund")
	d.BatchID, d.BusinessID, d.UserName, d.Headers, d.Delay = "b", "o", "Mei", []byte(`{"city":"Ghent"}`), time.Hour
	want := []processlog.Row{t.insert(d)[0], t.die("refund", nil), t.claim(t.insertOne("mail").ID, token(1), time.Hour)}
	rows, err := t.ops().Outlines(t.ctx, []processlog.ID{want[2].ID, processlog.RowID(1 << 40), want[0].ID, want[1].ID})
	require.NoError(t, err)
	require.Len(t, rows, len(want))
	for _, w := range want {
		row := rows[slices.IndexFunc(rows, func(row processlog.Row) bool { return row.ID == w.ID })]
		assert.Empty(t, row.Content)
		w = t.load(w.ID)
		require.NotEmpty(t, w.Content)
		assert.InDelta(t, w.DueIn, row.DueIn, float64(time.Minute))
		assert.InDelta(t, w.LeaseLeft, row.LeaseLeft, float64(time.Minute))
		w.Content, w.DueIn, w.LeaseLeft = row.Content, row.DueIn, row.LeaseLeft
		assert.Equal(t, w, row)
	}
	none, err := t.ops().Outlines(t.ctx, nil)
	require.NoError(t, err)
	assert.Empty(t, none)
	odd := t.draft("refund")
	odd.IdempotencyKey = "refund@'2026'\\"
	want = append(want, t.insert(odd)[0])
	byKey, err := t.ops().OutlinesByKey(t.ctx, []string{string(want[0].IdempotencyKey), "unknown", string(odd.IdempotencyKey)})
	require.NoError(t, err)
	require.Len(t, byKey, 2)
	for _, row := range byKey {
		assert.Contains(t, []processlog.ID{want[0].ID, want[3].ID}, row.ID)
		assert.Empty(t, row.Content)
	}
	none, err = t.ops().OutlinesByKey(t.ctx, nil)
	require.NoError(t, err)
	assert.Empty(t, none)
}

// Types must list each type that was ever paused, even if the newest operations are about other types.
func (t *storeTest) typesAreThoseOfLogAndOperations() {
	t.insertOne("refund")
	t.die("mail", nil)
	t.die("mail", nil)
	for _, name := range []string{"gone", "refund", ""} {
		require.NoError(t, t.ops().Operate(t.ctx, processlog.Operation{Actor: "mei", Action: "pause", BusinessType: name}))
	}
	for _, name := range []string{"braked", "mail"} {
		require.NoError(t, t.ops().PutSetting(t.ctx, processlog.Pause(name), processlog.Operation{Actor: "mei", Action: "set"}))
	}
	ended := processlog.Pause("braked")
	ended.Value, ended.Version = "", 1
	require.NoError(t, t.ops().PutSetting(t.ctx, ended, processlog.Operation{Actor: "mei", Action: "set"}))
	require.NoError(t, t.ops().PutSetting(t.ctx, processlog.Setting{Name: "roles", Value: "pause"}, processlog.Operation{Actor: "mei", Action: "set"}))
	types, err := t.ops().Types(t.ctx)
	require.NoError(t, err)
	assert.Equal(t, []string{"braked", "gone", "mail", "refund"}, types)
}

func (t *storeTest) auditLogTellsAllNewestFirst() {
	row := t.inState(processlog.Dead)
	other := t.inState(processlog.Dead)
	at := func() { // Each operation needs a different millisecond.
		now := time.Now()
		t.waitUntil(func() bool { return time.Since(now) > 4*time.Millisecond }, "time passes")
	}
	for _, op := range []processlog.Operation{
		{Actor: "mei", Action: "note", EntryID: row.ID, BusinessType: "states", Reason: "1 asked the bank"},
		{Actor: "bob", Action: "requeue", Refused: true, EntryID: other.ID, BusinessType: "states", Subject: "1 of 1 entry"},
	} {
		require.NoError(t, t.ops().Operate(t.ctx, op))
		at()
	}
	t.change(row.ID, processlog.ActionRequeue)
	at()
	require.NoError(t, t.Store.Note(t.ctx, processlog.ActionPurge, processlog.AuditInfo{Actor: "Purge", Reason: "all"}))
	at()
	require.NoError(t, t.ops().Operate(t.ctx, processlog.Operation{Actor: "mei", Action: "pause", BusinessType: "states", Reason: "PSP"}))
	list := func(f processlog.AuditLogFilter) (found []string) {
		f.Limit = 2
		for range 20 {
			page, err := t.ops().AuditLog(t.ctx, f)
			require.NoError(t, err)
			for _, r := range page.Records {
				found = append(found, r.Actor+" "+r.Action)
				assert.Equal(t, r.Action == "requeue" && !r.Refused, r.Before != nil, "%+v", r)
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				return found
			}
		}
		return append(found, "and so on for ever")
	}
	assert.Equal(t, []string{"mei pause", "Purge purge", "ann requeue", "bob requeue", "mei note"}, list(processlog.AuditLogFilter{}))
	assert.Equal(t, []string{"ann requeue", "mei note"}, list(processlog.AuditLogFilter{EntryID: row.ID}))
	assert.Equal(t, []string{"mei pause", "mei note"}, list(processlog.AuditLogFilter{Actor: "mei"}))
	assert.Equal(t, []string{"ann requeue", "bob requeue"}, list(processlog.AuditLogFilter{Action: "requeue"}))
	assert.Equal(t, []string{"mei pause", "ann requeue", "bob requeue", "mei note"}, list(processlog.AuditLogFilter{BusinessTypes: []string{"states"}}))
	assert.Equal(t, []string{"Purge purge"}, list(processlog.AuditLogFilter{BusinessTypes: []string{"", "refund"}}))
	assert.Empty(t, list(processlog.AuditLogFilter{BusinessTypes: []string{"refund"}}))
	assert.Empty(t, list(processlog.AuditLogFilter{BusinessTypes: []string{}}), "no types")
	assert.Empty(t, list(processlog.AuditLogFilter{BusinessTypes: []string{}, Actor: "mei"}), "no types")
	last, err := t.ops().AuditLog(t.ctx, processlog.AuditLogFilter{BusinessTypes: []string{""}, Limit: 1})
	require.NoError(t, err)
	assert.Empty(t, last.Next, "the remaining records belong to another type")
	page, err := t.ops().AuditLog(t.ctx, processlog.AuditLogFilter{})
	require.NoError(t, err)
	requeued := page.Records[2]
	assert.Equal(t, []any{"states", processlog.Dead, processlog.Pending}, []any{requeued.BusinessType, requeued.Before.State, requeued.After.State})
	assert.Equal(t, []string{"ann requeue", "bob requeue"}, list(processlog.AuditLogFilter{From: page.Records[3].At, To: page.Records[1].At}))
	assert.True(t, page.Records[3].Refused)
	assert.Equal(t, "1 asked the bank", page.Records[4].Reason)
}

// Failure: F126
func (t *storeTest) erasureReachesCaseAndOperations() {
	row, other := t.die("refund", caseDraft(1, 1, "CNY")), t.die("refund", caseDraft(1, 1, "CNY"))
	for _, id := range []processlog.ID{row.ID, other.ID} {
		require.NoError(t, t.ops().Operate(t.ctx, processlog.Operation{Actor: "mei", Action: "note", EntryID: id, Reason: "called Zhang San"}))
	}
	_, err := t.Store.Change(t.ctx, nil, false, newChange(row.ID, processlog.ActionErase))
	require.NoError(t, err)
	assert.Empty(t, t.openCase(row.ID).Error)
	assert.NotEmpty(t, t.openCase(other.ID).Error)
	page, err := t.ops().AuditLog(t.ctx, processlog.AuditLogFilter{Action: "note"})
	require.NoError(t, err)
	for _, r := range page.Records {
		assert.Equal(t, r.EntryID == other.ID, r.Reason != "")
	}
}

func (t *storeTest) settingIsPutAsItWasSeen() {
	op := processlog.Operation{Actor: "mei", Action: "pause", BusinessType: "refund", Reason: "PSP is down"}
	pause := processlog.Pause("refund")
	pause.Actor, pause.Reason = "mei", "PSP is down"
	require.NoError(t, t.ops().PutSetting(t.ctx, pause, op))
	require.ErrorIs(t, t.ops().PutSetting(t.ctx, pause, op), processlog.ErrChanged, "the setting exists already")
	settings, err := t.ops().Settings(t.ctx)
	require.NoError(t, err)
	require.Len(t, settings, 1)
	name, paused := processlog.PausedType(settings[0])
	assert.Equal(t, []any{"refund", true, "mei", "PSP is down", uint64(1)}, []any{name, paused, settings[0].Actor, settings[0].Reason, settings[0].Version})
	assert.WithinDuration(t, time.Now(), settings[0].At, time.Hour)
	pause.Version, pause.Value = 1, ""
	require.NoError(t, t.ops().PutSetting(t.ctx, pause, op))
	require.ErrorIs(t, t.ops().PutSetting(t.ctx, pause, op), processlog.ErrChanged, "the setting has another version")
	settings, err = t.ops().Settings(t.ctx)
	require.NoError(t, err)
	_, paused = processlog.PausedType(settings[0])
	assert.False(t, paused)
	long := processlog.PauseFor("refund", time.Hour)
	long.Version = 2
	require.NoError(t, t.ops().PutSetting(t.ctx, long, op))
	settings, err = t.ops().Settings(t.ctx)
	require.NoError(t, err)
	_, paused = processlog.PausedType(settings[0])
	assert.Equal(t, []any{true, settings[0].At.Add(time.Hour)}, []any{paused, settings[0].PauseEnd()})
	assert.Less(t, settings[0].ReadAt.Sub(settings[0].At), time.Hour, "both are by the database's clock")
	longer := processlog.PauseFor("refund", 2*time.Hour)
	longer.Version = 3
	require.NoError(t, t.ops().PutSetting(t.ctx, longer, op))
	require.ErrorIs(t, t.ops().PutSetting(t.ctx, longer, op), processlog.ErrChanged, "another person has moved the end")
	settings, err = t.ops().Settings(t.ctx)
	require.NoError(t, err)
	_, paused = processlog.PausedType(settings[0])
	assert.Equal(t, []any{true, settings[0].At.Add(2 * time.Hour)}, []any{paused, settings[0].PauseEnd()}, "the new end counts from the second write")
	short := processlog.PauseFor("refund", time.Millisecond)
	short.Version = 4
	require.NoError(t, t.ops().PutSetting(t.ctx, short, op))
	t.waitUntil(func() bool {
		settings, err = t.ops().Settings(t.ctx)
		require.NoError(t, err)
		_, paused = processlog.PausedType(settings[0])
		return !paused
	}, "the pause ends by itself")
	assert.False(t, settings[0].ReadAt.Before(settings[0].PauseEnd()))
	page, err := t.ops().AuditLog(t.ctx, processlog.AuditLogFilter{Action: "pause"})
	require.NoError(t, err)
	assert.Len(t, page.Records, 5, "a refused call leaves no record")
}
