package suite

import (
	"errors"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

func (t *storeTest) claimLeasesFencesAndCounts() {
	for _, state := range []processlog.State{processlog.Pending, processlog.Retrying, processlog.Compensating} {
		before := t.inState(state)
		row := t.claim(before.ID, token(1), time.Hour)
		t.assertFollows(before, row)
		assert.Equal(t, token(1), row.Token)
		assert.Equal(t, before.DeliveryCount+1, row.DeliveryCount)
		assert.Equal(t, time.Hour, row.LeaseLeft)
		assert.Equal(t, state, row.State)
		stored := t.load(before.ID)
		assert.Equal(t, []any{row.Version, row.DeliveryCount, row.Token}, []any{stored.Version, stored.DeliveryCount, stored.Token})
		t.assertLease(time.Hour, stored.LeaseLeft)
		assert.Equal(t, before.ProcessCount, stored.ProcessCount, "a claim is no failure")
	}
}

func (t *storeTest) claimSortsWhatItCannotHave() {
	free, leased, refused := t.insertOne("sort"), t.insertOne("sort"), t.insertOne("sort")
	t.claim(leased.ID, token(2), 2*time.Hour)
	later := t.draft("sort")
	later.Delay = time.Hour
	delayed, done, missing := t.insert(later)[0], t.inState(processlog.Succeeded), processlog.RowID(1<<40)
	var want []processlog.Wanted
	for _, id := range []processlog.ID{missing, done.ID, delayed.ID, leased.ID, refused.ID, free.ID} {
		want = append(want, processlog.Wanted{ID: id})
	}
	found, err := t.Store.Claim(t.ctx, want, token(1), time.Minute, func(row *processlog.Row) bool { return row.ID != refused.ID })
	require.NoError(t, err)
	require.Len(t, found.Mine, 1)
	assert.Equal(t, free.ID, found.Mine[0].ID)
	require.Len(t, found.Skipped, 1)
	assert.Equal(t, refused.ID, found.Skipped[0].ID)
	assert.Equal(t, refused.Version, t.load(refused.ID).Version, "a refused row is unchanged")
	assert.ElementsMatch(t, []processlog.ID{missing, done.ID}, found.Gone)
	waits := make(map[processlog.ID]time.Duration)
	for _, w := range found.Waiting {
		waits[w.ID] = w.In
	}
	require.Len(t, waits, 2)
	assert.InDelta(t, time.Hour, waits[delayed.ID], float64(time.Minute))
	t.assertLease(2*time.Hour, waits[leased.ID])
	none, err := t.Store.Claim(t.ctx, nil, token(1), time.Minute, all)
	require.NoError(t, err)
	assert.Empty(t, none.Mine)
}

func (t *storeTest) delayedEntryIsNotClaimedEarly() {
	d := t.draft("later")
	d.Delay = 300 * time.Millisecond
	began := time.Now() // The delay counts from the insert, which is after this moment.
	row := t.insert(d)[0]
	t.waitUntil(func() bool {
		found, err := t.Store.Claim(t.ctx, []processlog.Wanted{{ID: row.ID}}, token(1), time.Minute, all)
		return err == nil && len(found.Mine) == 1
	}, "the entry comes due")
	assert.GreaterOrEqual(t, time.Since(began), d.Delay)
}

func (t *storeTest) endedLeaseMayBeClaimed() {
	const lease = 100 * time.Millisecond
	row := t.insertOne("ended")
	began := time.Now() // The lease counts from the claim, which is after this moment.
	t.claim(row.ID, token(1), lease)
	var second processlog.Row
	t.waitUntil(func() bool {
		found, err := t.Store.Claim(t.ctx, []processlog.Wanted{{ID: row.ID}}, token(2), time.Minute, all)
		if err == nil && len(found.Mine) == 1 {
			second = found.Mine[0]
		}
		return second.ID == row.ID
	}, "the lease ends")
	assert.Greater(t, time.Since(began), lease-time.Millisecond) // A store counts whole milliseconds.
	assert.Equal(t, 2, second.DeliveryCount, "the lost lease counts")
}

func (t *storeTest) concurrentClaimsGetEachEntryOnce() {
	var drafts []processlog.Draft
	for range 200 {
		drafts = append(drafts, t.draft("rush"))
	}
	var want []processlog.Wanted
	for _, row := range t.insert(drafts...) {
		want = append(want, processlog.Wanted{ID: row.ID})
	}
	var mu sync.Mutex
	owners := make(map[processlog.ID]int)
	claim := func(by processlog.Token) (left int, err error) {
		found, err := t.Store.Claim(t.ctx, want, by, time.Minute, all)
		mu.Lock()
		defer mu.Unlock()
		for _, row := range found.Mine {
			owners[row.ID]++
		}
		return len(want) - len(owners), err
	}
	var errs [writers]error
	inParallel(func(i int) {
		end := time.Now().Add(eventually)
		for left := len(want); (left > 0 || errs[i] != nil) && time.Now().Before(end); <-time.After(time.Millisecond) {
			left, errs[i] = claim(token(byte(20 + i))) // A claim may be the victim of a deadlock.
		}
	})
	require.NoError(t, errors.Join(errs[:]...))
	require.Len(t, owners, len(want))
	for id, n := range owners {
		require.Equal(t, 1, n, "exactly one claim has entry %s", id)
		require.Equal(t, 1, t.load(id).DeliveryCount)
	}
}

func (t *storeTest) claimNeverWaitsForALockedRow() {
	held, free := t.insertOne("held"), t.insertOne("held")
	tx := t.begin()
	_, err := t.Store.Change(t.ctx, tx, false, newChange(held.ID, processlog.ActionCancel))
	require.NoError(t, err)
	found, err := t.Store.Claim(t.ctx, []processlog.Wanted{{ID: held.ID}, {ID: free.ID}}, token(1), time.Minute, all)
	require.NoError(t, err)
	require.Len(t, found.Mine, 1)
	assert.Equal(t, free.ID, found.Mine[0].ID)
	require.Len(t, found.Waiting, 1)
	assert.Equal(t, held.ID, found.Waiting[0].ID)
	assert.Greater(t, found.Waiting[0].In, time.Duration(0))
	assert.LessOrEqual(t, found.Waiting[0].In, 50*time.Millisecond)
	require.NoError(t, tx.Rollback())
	t.claim(held.ID, token(1), time.Minute)
}

func (t *storeTest) releaseUndoesOnlyItsOwnClaim() {
	mine, other := t.insertOne("release"), t.insertOne("release")
	claimed := t.claim(mine.ID, token(1), time.Minute)
	theirs := t.claim(other.ID, token(2), time.Minute)
	ids := []processlog.ID{mine.ID, other.ID, processlog.RowID(1 << 40)}
	t.release(token(1), ids...)
	t.release(token(1), ids...)
	row := t.load(mine.ID)
	assert.Equal(t, claimed.Version+1, row.Version)
	assert.Zero(t, row.DeliveryCount)
	assert.LessOrEqual(t, row.LeaseLeft, time.Duration(0))
	assert.Equal(t, theirs.Version, t.load(other.ID).Version)
	t.claim(mine.ID, token(3), time.Minute)
}

func (t *storeTest) release(by processlog.Token, ids ...processlog.ID) {
	t.Helper()
	left, err := t.Store.Release(t.ctx, ids, by)
	require.NoError(t, err)
	require.Empty(t, left)
}

func (t *storeTest) releaseFreesTheOthersWhereOneIsLocked() {
	held, free := t.insertOne("release"), t.insertOne("release")
	t.claim(held.ID, token(1), time.Minute)
	t.claim(free.ID, token(1), time.Minute)
	tx := t.begin()
	_, err := t.Store.Change(t.ctx, tx, false, newChange(held.ID, processlog.ActionReschedule))
	require.NoError(t, err)
	left, err := t.Store.Release(t.ctx, []processlog.ID{held.ID, free.ID}, token(1))
	require.NoError(t, err)
	assert.Equal(t, processlog.Unreleased{Busy: []processlog.ID{held.ID}}, left)
	t.claim(free.ID, token(2), time.Minute)
	require.NoError(t, tx.Rollback())
	t.release(token(1), held.ID)
	t.claim(held.ID, token(3), time.Minute)
}

func (t *storeTest) renewKeepsTheVersionAndTellsWhatIsLost() {
	held, lost, done := t.insertOne("renew"), t.insertOne("renew"), t.insertOne("renew")
	a, b, c := t.claim(held.ID, token(1), time.Minute), t.claim(lost.ID, token(1), time.Minute), t.claim(done.ID, token(1), time.Minute)
	t.change(lost.ID, processlog.ActionReschedule)
	require.True(t, t.settle(token(2), outcome(c, processlog.Succeeded)).Applied)
	left, err := t.Store.Renew(t.ctx, []processlog.Held{{ID: a.ID, Version: a.Version}, {ID: b.ID, Version: b.Version}, {ID: c.ID, Version: c.Version}}, time.Hour)
	require.NoError(t, err)
	assert.ElementsMatch(t, []processlog.ID{lost.ID, done.ID}, left.Lost)
	assert.Empty(t, left.Busy)
	row := t.load(held.ID)
	assert.Equal(t, a.Version, row.Version)
	assert.Equal(t, a.Token, row.Token)
	t.assertLease(time.Hour, row.LeaseLeft)
}
