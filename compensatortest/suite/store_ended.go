package suite

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

var serviceEnds = map[processlog.Action]struct {
	to processlog.State
	by processlog.EndedBy
}{
	processlog.ActionCancel:   {processlog.Cancelled, processlog.EndedByCancel},
	processlog.ActionComplete: {processlog.Succeeded, processlog.EndedByComplete},
}

// row is the entry after its death, and claimed is the row of the claim.
func (t *storeTest) insertDead(by processlog.EndedBy, compensateCount int) (row, claimed processlog.Row) {
	t.Helper()
	claimed = t.claim(t.insertOne("dead").ID, token(9), time.Minute)
	o := outcome(claimed, processlog.Dead)
	o.EndedBy, o.ProcessCount, o.CompensateCount, o.LastError = by, 1, compensateCount, "failed"
	require.True(t, t.settle(token(10), o).Applied)
	return t.load(claimed.ID), claimed
}

func (t *storeTest) deadEntryIsEndedByAServiceUnlessItsCompensationHasBegun() {
	for action, want := range serviceEnds {
		for _, by := range []processlog.EndedBy{processlog.EndedByPermanent, processlog.EndedByExhausted, processlog.EndedByCrash} {
			begun, _ := t.insertDead(by, 1)
			_, err := t.Store.Change(t.ctx, nil, false, newChange(begun.ID, action))
			var refused *processlog.StateError
			require.ErrorAs(t, err, &refused, "%s, dead by %s", action, by)
			assert.Equal(t, processlog.StateError{ID: begun.ID, IdempotencyKey: begun.IdempotencyKey, State: processlog.Dead, Action: action, CompensationBegun: true}, *refused)
			assert.Equal(t, begun.Version, t.load(begun.ID).Version, "a refusal changes nothing")

			before, _ := t.insertDead(by, 0)
			was, err := t.Store.Change(t.ctx, nil, false, newChange(before.ID, action))
			require.NoError(t, err, "%s, dead by %s", action, by)
			assert.Equal(t, processlog.Dead, was.State, "the row as it was is returned")
			after := t.load(before.ID)
			t.assertFollows(before, after)
			assert.Equal(t, []any{want.to, want.by, before.Epoch, before.ProcessCount, before.LastError},
				[]any{after.State, after.EndedBy, after.Epoch, after.ProcessCount, after.LastError})
			assert.GreaterOrEqual(t, after.NextAt, before.NextAt, "NextAt is the time of this end")
			history, err := t.Store.History(t.ctx, before.ID)
			require.NoError(t, err)
			assert.Empty(t, history, "an action of a service leaves no audit record")
		}
	}
}

// An entry is dead-lettered after repeated crashes, and then a service ends it.
// Failure: F68
func (t *storeTest) deadEntryThatAServiceEndedTakesNoLateOutcome() {
	for action, want := range serviceEnds {
		var late []processlog.Outcome
		var rows []processlog.Row
		for _, to := range []processlog.State{processlog.Succeeded, processlog.Retrying, processlog.Compensating, processlog.Dead, processlog.Compensated} {
			row, claimed := t.insertDead(processlog.EndedByCrash, 0)
			t.change(row.ID, action)
			o := outcome(claimed, to)
			late, rows = append(late, o), append(rows, t.load(row.ID))
			for _, version := range []uint64{claimed.Version, row.Version, row.Version + 1} {
				o.Version = version
				tx := t.begin()
				assert.ErrorIs(t, t.Store.SettleTx(t.ctx, tx, token(11), o), processlog.ErrLeaseLost, "%s after %s", to, action)
				require.NoError(t, tx.Rollback())
			}
		}
		answers, err := t.Store.Settle(t.ctx, token(12), late)
		require.NoError(t, err)
		for i, answer := range answers {
			assert.Equal(t, processlog.Settled{State: want.to, EndedBy: want.by}, answer, "%s after %s", late[i].To, action)
			assert.Equal(t, rows[i].Version, t.load(rows[i].ID).Version)
		}
	}
}

func (t *storeTest) whatIsCancelledCanBeCancelledAgain() {
	for _, row := range []processlog.Row{t.inState(processlog.Cancelled), t.insertOne("twice")} {
		if row.State == processlog.Pending {
			t.change(row.ID, processlog.ActionCancel)
			row = t.load(row.ID)
		}
		tx := t.begin()
		for _, in := range []processlog.Tx{nil, tx} {
			was, err := t.Store.Change(t.ctx, in, false, newChange(row.ID, processlog.ActionCancel))
			require.NoError(t, err)
			assert.Equal(t, processlog.Cancelled, was.State, "the returned row shows that the entry was cancelled")
		}
		require.NoError(t, tx.Commit())
		after := t.load(row.ID)
		assert.Equal(t, []any{row.Version, row.Token, row.NextAt, row.UpdatedAt}, []any{after.Version, after.Token, after.NextAt, after.UpdatedAt}, "nothing is written")
	}
}

func (t *storeTest) whatHasSucceededIsNotCompletedAgain() {
	completed := t.insertOne("completed")
	t.change(completed.ID, processlog.ActionComplete)
	for _, row := range []processlog.Row{t.load(completed.ID), t.inState(processlog.Succeeded)} {
		_, err := t.Store.Change(t.ctx, nil, false, newChange(row.ID, processlog.ActionComplete))
		assert.ErrorIs(t, err, processlog.ErrAlreadySucceeded)
		assert.ErrorAs(t, err, new(*processlog.StateError))
		_, err = t.Store.Change(t.ctx, nil, false, newChange(row.ID, processlog.ActionCancel))
		assert.ErrorAs(t, err, new(*processlog.StateError))
		assert.NotErrorIs(t, err, processlog.ErrAlreadySucceeded, "a cancellation that comes too late is no duplicate")
		assert.Equal(t, row.Version, t.load(row.ID).Version)
	}
}
