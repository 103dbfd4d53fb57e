package suite

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

var lockPromises = []storePromise{
	{"SecondInsertOfAKeyWaitsForTheFirst", true, (*storeTest).secondInsertOfAKeyWaitsForTheFirst},
	{"WaitingInsertEndsWithItsContext", true, (*storeTest).waitingInsertEndsWithItsContext},
	{"SecondChangeInATransactionWaitsForTheFirst", true, (*storeTest).secondChangeInATransactionWaitsForTheFirst},
	{"SettleIsNotHeldUpByALockedRow", true, (*storeTest).settleIsNotHeldUpByALockedRow},
	{"RenewIsNotHeldUpByALockedRow", true, (*storeTest).renewIsNotHeldUpByALockedRow},
	{"ClaimPassesAnUncommittedSettle", true, (*storeTest).claimPassesAnUncommittedSettle},
	{"ResolveGivesUpOnALongTransaction", true, (*storeTest).resolveGivesUpOnALongTransaction},
	{"PurgeLeavesALockedRow", true, (*storeTest).purgeLeavesALockedRow},
	{"PurgePassesByWhatIsRecordedAgain", true, (*storeTest).purgePassesByWhatIsRecordedAgain},
}

// early is how long a test observes that a blocked call does not return.
const early = 100 * time.Millisecond

func assertWaits[T any](t *storeTest, call func() (T, error), end func() error) (T, error) {
	t.Helper()
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := call()
		answers <- answer{value, err}
	}()
	select {
	case got := <-answers:
		require.Fail(t, "the call returned while the transaction was open", "%v %v", got.value, got.err)
	case <-time.After(early):
	}
	require.NoError(t, end())
	var got answer
	select {
	case got = <-answers:
	case <-time.After(eventually):
		require.Fail(t, "never answered")
	}
	return got.value, got.err
}

func (t *storeTest) secondInsertOfAKeyWaitsForTheFirst() {
	for _, commits := range []bool{true, false} {
		first, second := t.begin(), t.begin()
		d := t.draft("second")
		inserted, err := t.Store.Insert(t.ctx, first, []processlog.Draft{d}, false)
		require.NoError(t, err)
		end := first.Rollback
		if commits {
			end = first.Commit
		}
		again, err := assertWaits(t, func() ([]processlog.Inserted, error) {
			return t.Store.Insert(t.ctx, second, []processlog.Draft{t.draft("second"), d}, false)
		}, end)
		require.NoError(t, err)
		assert.Equal(t, commits, again[1].Duplicate)
		if commits {
			assert.Equal(t, inserted[0].ID, again[1].ID)
		}
		require.NoError(t, second.Commit())
		ids, err := t.Store.IDs(t.ctx, nil, []processlog.IdempotencyKey{d.IdempotencyKey})
		require.NoError(t, err)
		assert.Len(t, ids, 1)
	}
}

func (t *storeTest) waitingInsertEndsWithItsContext() {
	first, second := t.begin(), t.begin()
	d, beside := t.draft("impatient"), t.draft("impatient")
	inserted, err := t.Store.Insert(t.ctx, first, []processlog.Draft{d}, false)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.ctx, early)
	defer cancel()
	_, err = t.Store.Insert(ctx, second, []processlog.Draft{beside, d}, false)
	require.Error(t, err)
	_ = second.Rollback() // Ignore the error. The driver may have ended the transaction together with the context.
	require.NoError(t, first.Commit())
	t.requireAbsent(beside)
	assert.Zero(t, t.load(inserted[0].ID).Version)
}

func (t *storeTest) secondChangeInATransactionWaitsForTheFirst() {
	row := t.insertOne("second")
	first, second := t.begin(), t.begin()
	_, err := t.Store.Change(t.ctx, first, false, newChange(row.ID, processlog.ActionCancel))
	require.NoError(t, err)
	_, err = assertWaits(t, func() (processlog.Row, error) {
		return t.Store.Change(t.ctx, second, false, newChange(row.ID, processlog.ActionComplete))
	}, first.Commit)
	var refused *processlog.StateError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, processlog.Cancelled, refused.State)
	require.NoError(t, second.Commit(), "a refusal leaves the transaction usable")
	assert.Equal(t, row.Version+1, t.load(row.ID).Version)
}

func (t *storeTest) settleIsNotHeldUpByALockedRow() {
	for _, commits := range []bool{true, false} {
		held, free := t.claim(t.insertOne("held").ID, token(1), time.Hour), t.claim(t.insertOne("held").ID, token(1), time.Hour)
		outcomes := []processlog.Outcome{outcome(held, processlog.Succeeded), outcome(free, processlog.Succeeded)}
		tx := t.begin()
		_, err := t.Store.Change(t.ctx, tx, false, newChange(held.ID, processlog.ActionCancel))
		require.NoError(t, err)
		answers, err := t.Store.Settle(t.ctx, token(2), outcomes)
		require.NoError(t, err)
		assert.Equal(t, processlog.Settled{Busy: true}, answers[0])
		assert.True(t, answers[1].Applied)
		assert.Equal(t, processlog.Succeeded, t.load(free.ID).State, "the other row is still held")
		if commits {
			require.NoError(t, tx.Commit())
		} else {
			require.NoError(t, tx.Rollback())
		}
		answers, err = t.Store.Settle(t.ctx, token(2), outcomes)
		require.NoError(t, err)
		assert.Equal(t, !commits, answers[0].Applied, "%+v", answers[0])
		assert.True(t, answers[1].Applied)
		assert.Equal(t, held.Version+1, t.load(held.ID).Version)
		assert.Equal(t, free.Version+1, t.load(free.ID).Version)
	}
}

func (t *storeTest) renewIsNotHeldUpByALockedRow() {
	held, free := t.claim(t.insertOne("held").ID, token(1), time.Minute), t.claim(t.insertOne("held").ID, token(1), time.Minute)
	tx := t.begin()
	require.NoError(t, t.Store.SettleTx(t.ctx, tx, token(2), outcome(held, processlog.Succeeded)))
	both := []processlog.Held{{ID: held.ID, Version: held.Version}, {ID: free.ID, Version: free.Version}}
	left, err := t.Store.Renew(t.ctx, both, 3*time.Hour)
	require.NoError(t, err)
	assert.Empty(t, left.Lost, "the lease of a row that a transaction holds is not lost")
	assert.Equal(t, []processlog.ID{held.ID}, left.Busy, "the lease of a row that a transaction holds is not renewed")
	t.assertLease(3*time.Hour, t.load(free.ID).LeaseLeft)
	require.NoError(t, tx.Commit())
	assert.Equal(t, processlog.Succeeded, t.load(held.ID).State)
}

func (t *storeTest) claimPassesAnUncommittedSettle() {
	held := t.claim(t.insertOne("handler").ID, token(1), time.Millisecond)
	t.waitUntil(func() bool { return t.load(held.ID).LeaseLeft <= 0 }, "the lease ends")
	tx := t.begin()
	require.NoError(t, t.Store.SettleTx(t.ctx, tx, token(2), outcome(held, processlog.Succeeded)))
	found, err := t.Store.Claim(t.ctx, []processlog.Wanted{{ID: held.ID}}, token(3), time.Minute, all)
	require.NoError(t, err)
	assert.Empty(t, found.Mine, "the transaction may commit its effect at any moment")
	require.Len(t, found.Waiting, 1)
	require.NoError(t, tx.Commit())
	found, err = t.Store.Claim(t.ctx, []processlog.Wanted{{ID: held.ID}}, token(3), time.Minute, all)
	require.NoError(t, err)
	assert.Equal(t, []processlog.ID{held.ID}, found.Gone)
}

func (t *storeTest) resolveGivesUpOnALongTransaction() {
	tx := t.begin()
	d := t.draft("long")
	_, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{d}, false)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.ctx, 5*time.Second)
	defer cancel()
	_, err = t.Store.Resolve(ctx, d.IdempotencyKey)
	// A store that waits for less than 5 s returns ErrBusy. A store that waits longer returns the error of the context.
	if !errors.Is(err, processlog.ErrBusy) {
		require.ErrorIs(t, err, context.DeadlineExceeded, "an entry in an open transaction is not reported as missing")
	}
	require.NoError(t, tx.Commit())
	row, err := t.Store.Resolve(t.ctx, d.IdempotencyKey)
	require.NoError(t, err)
	assert.Equal(t, d.IdempotencyKey, row.IdempotencyKey)
}

func (t *storeTest) purgeLeavesALockedRow() {
	held, free := t.inState(processlog.Dead), t.inState(processlog.Dead)
	t.waitUntil(func() bool { return max(t.load(held.ID).DueIn, t.load(free.ID).DueIn) < -5*time.Millisecond }, "both entries are old enough")
	tx := t.begin()
	_, err := t.Store.Change(t.ctx, tx, false, newChange(held.ID, processlog.ActionRequeue))
	require.NoError(t, err)
	n, err := t.Store.Purge(t.ctx, "", processlog.Dead, time.Millisecond, 10)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	require.NoError(t, tx.Commit())
	assert.Equal(t, processlog.Pending, t.load(held.ID).State, "an entry that a person requeues is not purged")
}

func (t *storeTest) purgePassesByWhatIsRecordedAgain() {
	held, free := t.inState(processlog.Dead), t.inState(processlog.Dead)
	t.waitUntil(func() bool { return max(t.load(held.ID).DueIn, t.load(free.ID).DueIn) < -5*time.Millisecond }, "both entries are old enough")
	tx := t.begin()
	d := t.draft("again")
	d.IdempotencyKey = held.IdempotencyKey
	again, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{d}, false)
	require.NoError(t, err)
	require.True(t, again[0].Duplicate)
	n, err := t.Store.Purge(t.ctx, "", processlog.Dead, time.Millisecond, 10)
	require.NoError(t, err)
	assert.Equal(t, 1, n, "the purge deletes the other entry")
	assert.Equal(t, processlog.Dead, t.load(held.ID).State, "the entry that a transaction found as a duplicate still exists")
	require.NoError(t, tx.Commit())
	n, err = t.Store.Purge(t.ctx, "", processlog.Dead, time.Millisecond, 10)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
}
