package suite

import (
	"errors"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// contract is the table of what a service and people may do: from where, to where.
var contract = map[processlog.Action]struct {
	from  []processlog.State
	to    processlog.State // ignored for reschedule, which stays
	epoch uint32           // added
}{
	processlog.ActionComplete:   {[]processlog.State{processlog.Pending, processlog.Retrying, processlog.Dead}, processlog.Succeeded, 0},
	processlog.ActionCancel:     {[]processlog.State{processlog.Pending, processlog.Retrying, processlog.Dead}, processlog.Cancelled, 0},
	processlog.ActionReschedule: {[]processlog.State{processlog.Pending, processlog.Retrying}, 0, 0},
	processlog.ActionRequeue: {[]processlog.State{processlog.Dead, processlog.Succeeded, processlog.Compensated, processlog.Cancelled,
		processlog.SettledByHand, processlog.Retrying}, processlog.Pending, 1},
	processlog.ActionSettleByHand: {[]processlog.State{processlog.Dead, processlog.Retrying, processlog.Compensating}, processlog.SettledByHand, 1},
}

func (t *storeTest) everyActionIsAllowedAsTheContractSays() {
	for action, line := range contract {
		for _, state := range processlog.States {
			if action == processlog.ActionCancel && state == processlog.Cancelled {
				continue // see whatIsCancelledCanBeCancelledAgain
			}
			before := t.inState(state)
			change := newChange(processlog.IdempotentID(before.IdempotentID), action)
			was, err := t.Store.Change(t.ctx, nil, false, change)
			after := t.load(before.ID)
			if !slices.Contains(line.from, state) {
				var refused *processlog.StateError
				require.True(t, errors.As(err, &refused), "%s a %s entry: %v", action, state, err)
				assert.Equal(t, processlog.StateError{ID: before.ID, IdempotentID: before.IdempotentID, State: state, Action: action}, *refused)
				assert.Equal(t, before.Version, after.Version, "a refusal changes nothing")
				continue
			}
			require.NoError(t, err, "%s a %s entry", action, state)
			assert.Equal(t, before.Version, was.Version, "the row as it was is returned")
			t.follows(before, after)
			want := line.to
			if action == processlog.ActionReschedule {
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
		assert.Equal(t, processlog.OtherTypeError{IdempotentID: row.IdempotentID, Recorded: "order", Asked: "mail"}, *other)
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
	t.change(row.ID, processlog.ActionSettleByHand)
	history, err := t.Store.History(t.ctx, row.ID)
	require.NoError(t, err)
	require.Len(t, history, 2, "oldest first")
	first := history[0]
	assert.Equal(t, []any{row.ID, processlog.ActionRequeue, "ann", "because"}, []any{first.EntryID, first.Action, first.Actor, first.Reason})
	assert.Equal(t, processlog.AuditState{State: processlog.Dead, Version: row.Version, Epoch: row.Epoch, ProcessCount: row.ProcessCount, LastError: row.LastError}, first.Before)
	assert.Equal(t, processlog.Compensating, first.After.State)
	assert.Equal(t, row.Epoch+1, first.After.Epoch)
	assert.WithinDuration(t, time.Now(), first.At, time.Hour)
	assert.Equal(t, processlog.SettledByHand, history[1].After.State)
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
	_, err = t.Store.Change(t.ctx, tx, false, newChange(processlog.IdempotentID("nobody"), processlog.ActionCancel))
	require.ErrorIs(t, err, processlog.ErrNotFound)
	require.NoError(t, tx.Commit())
	assert.Equal(t, processlog.Cancelled, t.load(row.ID).State)
	_, err = t.Store.Change(t.ctx, tx, false, newChange(row.ID, processlog.ActionRequeue))
	require.Error(t, err, "the transaction is over")
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
		answer := make(chan error, 1)
		go func() {
			_, err := t.Store.Resolve(t.ctx, processlog.IdempotentID(d.IdempotentID))
			answer <- err
		}()
		select {
		case err := <-answer:
			require.Fail(t, "answered while the transaction was open", "%v", err)
		case <-time.After(100 * time.Millisecond): // long enough to see an answer that does not wait
		}
		if commits {
			require.NoError(t, tx.Commit())
			require.NoError(t, <-answer)
		} else {
			require.NoError(t, tx.Rollback())
			require.ErrorIs(t, <-answer, processlog.ErrNotFound)
		}
	}
}

func (t *storeTest) resolveOfNothingIsNotFound() {
	_, err := t.Store.Resolve(t.ctx, processlog.IdempotentID("nobody"))
	require.ErrorIs(t, err, processlog.ErrNotFound)
	row := t.insertOne("there")
	found, err := t.Store.Resolve(t.ctx, row.ID)
	require.NoError(t, err)
	assert.Equal(t, row.IdempotentID, found.IdempotentID)
}
