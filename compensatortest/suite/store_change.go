package suite

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

var contract = map[processlog.Action]struct {
	from  []processlog.State
	to    processlog.State // ignored for reschedule and erase, which keep the state
	epoch uint32           // number by which the action raises the epoch of the entry
}{
	processlog.ActionComplete:   {[]processlog.State{processlog.Pending, processlog.Retrying, processlog.Dead}, processlog.Succeeded, 0},
	processlog.ActionCancel:     {[]processlog.State{processlog.Pending, processlog.Retrying, processlog.Dead}, processlog.Cancelled, 0},
	processlog.ActionReschedule: {[]processlog.State{processlog.Pending, processlog.Retrying}, 0, 0},
	processlog.ActionRequeue: {[]processlog.State{processlog.Dead, processlog.Succeeded, processlog.Compensated, processlog.Cancelled,
		processlog.SettledManually, processlog.Retrying}, processlog.Pending, 1},
	processlog.ActionSettleManually: {[]processlog.State{processlog.Dead, processlog.Retrying, processlog.Compensating}, processlog.SettledManually, 1},
	processlog.ActionErase: {[]processlog.State{processlog.Dead, processlog.Succeeded, processlog.Compensated, processlog.Cancelled,
		processlog.SettledManually}, 0, 1},
}

func (t *storeTest) everyActionIsAllowedAsTheContractSays() {
	for action, line := range contract {
		for _, state := range processlog.States {
			if action == processlog.ActionCancel && state == processlog.Cancelled {
				continue
			}
			before := t.inState(state)
			change := newChange(before.IdempotencyKey, action)
			was, err := t.Store.Change(t.ctx, nil, false, change)
			after := t.load(before.ID)
			if !slices.Contains(line.from, state) {
				var refused *processlog.StateError
				require.True(t, errors.As(err, &refused), "%s a %s entry: %v", action, state, err)
				assert.Equal(t, processlog.StateError{ID: before.ID, IdempotencyKey: before.IdempotencyKey, State: state, Action: action}, *refused)
				assert.Equal(t, before.Version, after.Version, "a refusal changes nothing")
				continue
			}
			require.NoError(t, err, "%s a %s entry", action, state)
			assert.Equal(t, before.Version, was.Version, "the row as it was is returned")
			t.assertFollows(before, after)
			want := line.to
			if action == processlog.ActionReschedule || action == processlog.ActionErase {
				want = state
			}
			assert.Equal(t, want, after.State, "%s a %s entry", action, state)
			assert.Equal(t, before.Epoch+line.epoch, after.Epoch)
			assert.Equal(t, want.Terminal(), after.EndedBy != "", "a terminal entry says what ended it")
			if action == processlog.ActionRequeue {
				assert.Zero(t, after.ProcessCount)
				assert.Zero(t, after.CompensateCount)
			}
		}
	}
}

func (t *storeTest) changeForAnotherTypeIsRefused() {
	row := t.insertOne("order")
	change := processlog.Change{Ref: row.ID, BusinessType: "mail", Action: processlog.ActionCancel, Token: token(1)}
	tx := t.begin()
	fresh := t.draft("order")
	for _, in := range []processlog.Tx{nil, tx} {
		_, err := t.Store.Change(t.ctx, in, false, change)
		var other *processlog.OtherTypeError
		require.ErrorAs(t, err, &other)
		assert.Equal(t, processlog.OtherTypeError{IdempotencyKey: row.IdempotencyKey, Recorded: "order", Asked: "mail"}, *other)
	}
	_, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{fresh}, false)
	require.NoError(t, err, "the transaction stays usable")
	require.NoError(t, tx.Commit())
	assert.Equal(t, row.Version, t.load(row.ID).Version)
	change.BusinessType = "order"
	_, err = t.Store.Change(t.ctx, nil, false, change)
	require.NoError(t, err)
	assert.Equal(t, processlog.Cancelled, t.load(row.ID).State)
}

func (t *storeTest) actionsOfPeopleAreKept() {
	row := t.inState(processlog.Dead)
	requeue := newChange(row.ID, processlog.ActionRequeue)
	requeue.Compensate, requeue.Delay = true, time.Hour
	_, err := t.Store.Change(t.ctx, nil, false, requeue)
	require.NoError(t, err)
	assert.Equal(t, processlog.Compensating, t.load(row.ID).State)
	assert.Greater(t, t.load(row.ID).DueIn, 50*time.Minute)
	t.change(row.ID, processlog.ActionSettleManually)
	history, err := t.Store.History(t.ctx, row.ID)
	require.NoError(t, err)
	require.Len(t, history, 2, "oldest first")
	first := history[0]
	assert.Equal(t, []any{row.ID, processlog.ActionRequeue, "ann", "because"}, []any{first.EntryID, first.Action, first.Actor, first.Reason})
	assert.Equal(t, processlog.AuditState{State: processlog.Dead, Version: row.Version, Epoch: row.Epoch, ProcessCount: row.ProcessCount, LastError: row.LastError}, first.Before)
	assert.Equal(t, processlog.Compensating, first.After.State)
	assert.Equal(t, row.Epoch+1, first.After.Epoch)
	assert.WithinDuration(t, time.Now(), first.At, time.Hour)
	assert.Equal(t, processlog.SettledManually, history[1].After.State)
	none, err := t.Store.History(t.ctx, t.insertOne("quiet").ID)
	require.NoError(t, err)
	assert.Empty(t, none)
}

func (t *storeTest) changeInATransactionEndsWithIt() {
	row := t.insertOne("tx")
	tx := t.begin()
	_, err := t.Store.Change(t.ctx, tx, false, newChange(row.ID, processlog.ActionCancel))
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	assert.Equal(t, processlog.Pending, t.load(row.ID).State)
	tx = t.begin()
	_, err = t.Store.Change(t.ctx, tx, false, newChange(row.ID, processlog.ActionCancel))
	require.NoError(t, err)
	_, err = t.Store.Change(t.ctx, tx, false, newChange(row.ID, processlog.ActionComplete))
	var refused *processlog.StateError
	require.True(t, errors.As(err, &refused), "a refusal leaves the transaction usable: %v", err)
	_, err = t.Store.Change(t.ctx, tx, false, newChange(processlog.IdempotencyKey("nobody"), processlog.ActionCancel))
	require.ErrorIs(t, err, processlog.ErrNotFound)
	require.NoError(t, tx.Commit())
	assert.Equal(t, processlog.Cancelled, t.load(row.ID).State)
	_, err = t.Store.Change(t.ctx, tx, false, newChange(row.ID, processlog.ActionRequeue))
	require.Error(t, err, "the transaction has ended")
	assert.Equal(t, processlog.Cancelled, t.load(row.ID).State)
}

func (t *storeTest) changeOfALockedRowIsBusy() {
	row := t.insertOne("busy")
	tx := t.begin()
	_, err := t.Store.Change(t.ctx, tx, false, newChange(row.ID, processlog.ActionCancel))
	require.NoError(t, err)
	_, err = t.Store.Change(t.ctx, nil, false, newChange(row.ID, processlog.ActionComplete))
	require.ErrorIs(t, err, processlog.ErrBusy)
	require.NoError(t, tx.Commit())
	assert.Equal(t, processlog.Cancelled, t.load(row.ID).State)
}

func (t *storeTest) resolveWaitsForAnInsertInFlight() {
	for _, commits := range []bool{true, false} {
		d := t.draft("flight")
		tx := t.begin()
		_, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{d}, false)
		require.NoError(t, err)
		end := tx.Rollback
		if commits {
			end = tx.Commit
		}
		_, err = assertWaits(t, func() (processlog.Row, error) { return t.Store.Resolve(t.ctx, d.IdempotencyKey) }, end)
		if commits {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, processlog.ErrNotFound)
		}
	}
}

// A key differs from the entry's key in a few bytes.
// Failure: F15
func (t *storeTest) referenceThatOnlyLooksAlikeIsNotFound() {
	d := t.draft("alike")
	d.IdempotencyKey += "-e"
	row := t.insert(d)[0]
	for _, suffix := range []string{"-e ", "-e  ", "-E", "-é", "-e\t"} {
		ref := processlog.IdempotencyKey(strings.TrimSuffix(string(d.IdempotencyKey), "-e") + suffix)
		_, err := t.Store.Resolve(t.ctx, ref)
		assert.ErrorIs(t, err, processlog.ErrNotFound, "resolve %q", ref)
		_, err = t.Store.Change(t.ctx, nil, false, newChange(ref, processlog.ActionCancel))
		assert.ErrorIs(t, err, processlog.ErrNotFound, "cancel %q", ref)
		tx := t.begin()
		_, err = t.Store.Change(t.ctx, tx, false, newChange(ref, processlog.ActionCancel))
		assert.ErrorIs(t, err, processlog.ErrNotFound, "cancel %q in a transaction", ref)
		require.NoError(t, tx.Commit())
	}
	assert.Equal(t, processlog.Pending, t.load(row.ID).State)
}

func (t *storeTest) resolveOfNothingIsNotFound() {
	_, err := t.Store.Resolve(t.ctx, processlog.IdempotencyKey("nobody"))
	require.ErrorIs(t, err, processlog.ErrNotFound)
	row := t.insertOne("there")
	found, err := t.Store.Resolve(t.ctx, row.ID)
	require.NoError(t, err)
	assert.Equal(t, row.IdempotencyKey, found.IdempotencyKey)
}

func (t *storeTest) requeueAllTakesWhatStandsAsItWasSeen() {
	var rows []processlog.Row
	for _, state := range []processlog.State{processlog.Dead, processlog.Retrying, processlog.Succeeded, processlog.Pending, processlog.Dead} {
		rows = append(rows, t.inState(state))
	}
	moved, gone := t.inState(processlog.Dead), t.insertOne("states")
	seen := make([]processlog.Version, 0, len(rows)+3)
	for _, row := range append(rows, moved) {
		seen = append(seen, seenAs(row))
	}
	t.change(moved.ID, processlog.ActionCancel)
	unknown := seenAs(gone)
	unknown.ID = processlog.RowID(gone.ID.Row() + 1000)
	another := seenAs(gone)
	another.IdempotencyKey = "another's" // A database that was restored from a backup assigns ids again.
	seen = append(seen, unknown, another)
	requeue := newChange(nil, processlog.ActionRequeue)
	requeue.Delay = time.Hour
	answers, err := t.Store.RequeueAll(t.ctx, seen, requeue)
	require.NoError(t, err)
	require.Len(t, answers, len(seen))
	for i, row := range rows {
		after := t.load(row.ID)
		if row.State == processlog.Pending {
			var refused *processlog.StateError
			require.ErrorAs(t, answers[i].Err, &refused)
			assert.Equal(t, row.Version, after.Version)
			continue
		}
		require.NoError(t, answers[i].Err, "%s", row.State)
		assert.Equal(t, []any{row.Version, row.State, row.Epoch}, []any{answers[i].Before.Version, answers[i].Before.State, answers[i].Before.Epoch})
		t.assertFollows(row, after)
		assert.Equal(t, []any{processlog.Pending, row.Epoch + 1, 0, 0, 0, processlog.EndedBy("")},
			[]any{after.State, after.Epoch, after.ProcessCount, after.CompensateCount, after.DeliveryCount, after.EndedBy})
		assert.Equal(t, row.Content, after.Content)
		assert.Greater(t, after.DueIn, 50*time.Minute)
		history, err := t.Store.History(t.ctx, row.ID)
		require.NoError(t, err)
		require.Len(t, history, 1)
		last := history[0]
		assert.Equal(t, []any{row.ID, processlog.ActionRequeue, "ann", "because", row.State, row.Version, after.Version},
			[]any{last.EntryID, last.Action, last.Actor, last.Reason, last.Before.State, last.Before.Version, last.After.Version})
	}
	require.ErrorIs(t, answers[5].Err, processlog.ErrChanged)
	assert.Equal(t, processlog.Cancelled, t.load(moved.ID).State)
	require.ErrorIs(t, answers[6].Err, processlog.ErrNotFound)
	require.ErrorIs(t, answers[7].Err, processlog.ErrChanged)
	again, err := t.Store.RequeueAll(t.ctx, seen[:1], newChange(nil, processlog.ActionRequeue))
	require.NoError(t, err)
	require.ErrorIs(t, again[0].Err, processlog.ErrChanged, "a repeated call changes nothing")
	none, err := t.Store.RequeueAll(t.ctx, nil, newChange(nil, processlog.ActionRequeue))
	require.NoError(t, err)
	assert.Empty(t, none)
}

func seenAs(row processlog.Row) processlog.Version {
	return processlog.Version{ID: row.ID, IdempotencyKey: row.IdempotencyKey, State: row.State, Number: row.Version, Epoch: row.Epoch, Token: row.Token}
}

func (t *storeTest) requeueAllWaitsForNobody() {
	held, free := t.inState(processlog.Dead), t.inState(processlog.Dead)
	tx := t.begin()
	_, err := t.Store.Change(t.ctx, tx, false, newChange(held.ID, processlog.ActionCancel))
	require.NoError(t, err)
	answers, err := t.Store.RequeueAll(t.ctx, []processlog.Version{seenAs(free), seenAs(held)}, newChange(nil, processlog.ActionRequeue))
	require.NoError(t, err)
	require.NoError(t, answers[0].Err)
	require.ErrorIs(t, answers[1].Err, processlog.ErrBusy)
	require.NoError(t, tx.Commit())
	assert.Equal(t, processlog.Cancelled, t.load(held.ID).State)
	assert.Equal(t, processlog.Pending, t.load(free.ID).State)
}

func (t *storeTest) erasedEntryKeepsTheFactAlone() {
	for _, state := range processlog.States {
		if !state.Terminal() {
			continue
		}
		d := t.draft("erased")
		d.BatchID, d.BusinessID, d.BusinessExtID, d.UserID, d.UserName = "b", "o", "x", "u7", "Mei"
		d.Headers = []byte(`{"city":"Ghent"}`)
		row := t.insert(d)[0]
		t.settleTo(row, processlog.Dead)
		t.change(row.ID, processlog.ActionRequeue) // This adds an audit record with an error and a reason.
		switch state {
		case processlog.Cancelled:
			t.change(row.ID, processlog.ActionCancel)
		case processlog.SettledManually:
			t.settleTo(t.load(row.ID), processlog.Dead)
			t.change(row.ID, processlog.ActionSettleManually)
		case processlog.Compensated:
			t.settleTo(t.load(row.ID), processlog.Compensating)
			t.settleTo(t.load(row.ID), state)
		default:
			t.settleTo(t.load(row.ID), state)
		}
		before := t.load(row.ID)
		require.Equal(t, state, before.State)
		kept, err := t.Store.History(t.ctx, row.ID)
		require.NoError(t, err)
		erase := newChange(d.IdempotencyKey, processlog.ActionErase)
		was, err := t.Store.Change(t.ctx, nil, false, erase)
		require.NoError(t, err)
		assert.False(t, was.Erased)
		after := t.load(row.ID)
		t.assertFollows(before, after)
		want := before
		want.Version, want.Epoch, want.Token, want.UpdatedAt, want.Erased = after.Version, before.Epoch+1, erase.Token, after.UpdatedAt, true
		want.Content, want.Headers, want.UserName, want.LastError = nil, nil, "", ""
		want.DueIn, want.LeaseLeft = after.DueIn, after.LeaseLeft // Ignore these values, because time has passed since.
		assert.Empty(t, after.Content)
		after.Content = nil
		assert.Equal(t, want, after, "erasing keeps ids, state, counts and times")

		history, err := t.Store.History(t.ctx, row.ID)
		require.NoError(t, err)
		require.Len(t, history, len(kept)+1)
		for i, r := range kept {
			got := history[i]
			got.Ago = r.Ago
			assert.Equal(t, r.Erased(), got, "the record keeps the actor, the action and the time")
			assert.Empty(t, got.Reason+got.Before.LastError+got.After.LastError)
		}
		own := history[len(kept)]
		assert.Equal(t, []any{processlog.ActionErase, "ann", "because", state, state, before.Version}, []any{own.Action, own.Actor, own.Reason, own.Before.State, own.After.State, own.Before.Version})
		assert.Empty(t, own.Before.LastError+own.After.LastError)

		was, err = t.Store.Change(t.ctx, nil, false, newChange(row.ID, processlog.ActionErase))
		require.NoError(t, err)
		assert.True(t, was.Erased, "an entry may be erased again")
		assert.Equal(t, want.Version, t.load(row.ID).Version, "writes nothing")
		_, err = t.Store.Change(t.ctx, nil, false, newChange(row.ID, processlog.ActionRequeue))
		var refused *processlog.StateError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, processlog.StateError{ID: row.ID, IdempotencyKey: row.IdempotencyKey, State: state, Action: processlog.ActionRequeue, Erased: true}, *refused)
		answers, err := t.Store.RequeueAll(t.ctx, []processlog.Version{seenAs(t.load(row.ID))}, newChange(nil, processlog.ActionRequeue))
		require.NoError(t, err)
		require.ErrorAs(t, answers[0].Err, &refused)
		assert.True(t, refused.Erased)

		tx := t.begin()
		inserted, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{d}, false)
		require.NoError(t, err)
		require.NoError(t, tx.Rollback())
		assert.Equal(t, processlog.Inserted{ID: row.ID, Duplicate: true, BusinessType: "erased", State: state, ContentMatches: true}, inserted[0], "the key of an erased entry still prevents a duplicate")
	}
}

func (t *storeTest) erasedDeadEntryCanStillBeEnded() {
	for action, to := range map[processlog.Action]processlog.State{
		processlog.ActionCancel: processlog.Cancelled, processlog.ActionComplete: processlog.Succeeded, processlog.ActionSettleManually: processlog.SettledManually,
	} {
		row := t.inState(processlog.Dead)
		t.change(row.ID, processlog.ActionErase)
		t.change(row.ID, action)
		after := t.load(row.ID)
		assert.Equal(t, to, after.State)
		assert.True(t, after.Erased)
		assert.Empty(t, string(after.Content)+after.LastError)
	}
}
