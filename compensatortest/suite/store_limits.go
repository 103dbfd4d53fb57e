package suite

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

var limitPromises = []storePromise{
	{"RateGrantsTheBurstAndThenOneStartEachInterval", false, (*storeTest).rateGrantsTheBurstAndThenOneStartEachInterval},
	{"KeyHasTheWholeLimitForItself", false, (*storeTest).keyHasTheWholeLimitForItself},
	{"EachKeyIsCountedByItself", false, (*storeTest).eachKeyIsCountedByItself},
	{"StartsTakenInAdvanceAreCounted", false, (*storeTest).startsTakenInAdvanceAreCounted},
	{"LimitIsSharedByItsName", false, (*storeTest).limitIsSharedByItsName},
	{"EntryWithoutAPermitIsUnchanged", false, (*storeTest).entryWithoutAPermitIsUnchanged},
	{"EntryThatIsNotClaimedTakesNoPermit", false, (*storeTest).entryThatIsNotClaimedTakesNoPermit},
	{"StartThatIsReturnedIsGrantedAgain", false, (*storeTest).startThatIsReturnedIsGrantedAgain},
	{"StartOfAnEarlierClaimIsNotReturned", false, (*storeTest).startOfAnEarlierClaimIsNotReturned},
	{"IdleKeysAreDeletedWithoutAGrantTooMany", false, (*storeTest).idleKeysAreDeletedWithoutAGrantTooMany},
	{"PermitEndsWithTheOutcome", false, (*storeTest).permitEndsWithTheOutcome},
	{"PermitLastsAsLongAsTheLease", false, (*storeTest).permitLastsAsLongAsTheLease},
	{"PermitWhoseLeaseHasEndedCannotComeBack", false, (*storeTest).permitWhoseLeaseHasEndedCannotComeBack},
	{"ClaimsAtOnceNeverGrantMore", false, (*storeTest).claimsAtOnceNeverGrantMore},
	{"EntryThatTheDatabaseRefusesTakesNoStart", false, (*storeTest).entryThatTheDatabaseRefusesTakesNoStart},
	{"LimitThatAPersonChangesIsObeyedByTheNextClaim", false, (*storeTest).limitThatAPersonChangesIsObeyedByTheNextClaim},
	{"ChangedRateKeepsTheStartsThatAKeyHasAhead", false, (*storeTest).changedRateKeepsTheStartsThatAKeyHasAhead},
	{"LimitsAreReadAsTheLastClaimHadThem", false, (*storeTest).limitsAreReadAsTheLastClaimHadThem},
	{"LimitsAreClaimedBesideALockedEntry", true, (*storeTest).limitsAreClaimedBesideALockedEntry},
}

func (t *storeTest) drafts(businessType string, n int) (drafts []processlog.Draft) {
	for range n {
		drafts = append(drafts, t.draft(businessType))
	}
	return drafts
}

func (t *storeTest) claimLimited(limit processlog.StartLimit, by processlog.Token, lease time.Duration, ids ...processlog.ID) processlog.Claimed {
	t.Helper()
	wanted := make([]processlog.Wanted, len(ids))
	for i, id := range ids {
		wanted[i].ID = id
	}
	found, err := t.Store.ClaimLimited(t.ctx, wanted, by, lease, limit, all)
	require.NoError(t, err)
	return found
}

func limitedIDs(found processlog.Claimed) []processlog.ID {
	ids := make([]processlog.ID, len(found.Limited))
	for i, l := range found.Limited {
		ids[i] = l.ID
	}
	return ids
}

func byBusinessID(row *processlog.Row) (key string, limited, ok bool) {
	return row.BusinessID, row.BusinessID != "", true
}

func (t *storeTest) rateGrantsTheBurstAndThenOneStartEachInterval() {
	limit := processlog.StartLimit{Name: "psp", Interval: 300 * time.Millisecond, Burst: 3}
	ids := idsOf(t.insert(t.drafts("rate", 6)...))
	began := time.Now()
	found := t.claimLimited(limit, token(1), time.Minute, ids...)
	assert.Equal(t, ids[:3], idsOf(found.Mine), "the burst, in the order of the ids")
	assert.Equal(t, ids[3:], limitedIDs(found))
	assert.Zero(t, found.Rooms[""].Starts)
	assert.Equal(t, processlog.Unbounded, found.Rooms[""].Permits)
	for _, l := range found.Limited {
		assert.Positive(t, l.In)
		assert.LessOrEqual(t, l.In, limit.Interval)
	}
	left := ids[3:]
	for n := 1; len(left) > 0; {
		<-time.After(2 * time.Millisecond) // In a bubble the clock moves only while the test waits.
		again := t.claimLimited(limit, token(2), time.Minute, left...)
		for range again.Mine {
			// A store counts in whole milliseconds.
			assert.GreaterOrEqual(t, time.Since(began), time.Duration(n)*limit.Interval-time.Millisecond, "start %d after the burst", n)
			n++
		}
		left = limitedIDs(again)
		require.Less(t, time.Since(began), eventually)
	}
}

func (t *storeTest) keyHasTheWholeLimitForItself() {
	limit := processlog.StartLimit{Name: "tenants", Interval: time.Hour, Burst: 2, Concurrent: 5, Key: byBusinessID}
	drafts := t.drafts("tenants", 8)
	for i, tenant := range []string{"a", "a", "a", "b", "a", "b", "", ""} {
		drafts[i].BusinessID = tenant
	}
	rows := t.insert(drafts...)
	found := t.claimLimited(limit, token(1), time.Minute, idsOf(rows)...)
	assert.Equal(t, []processlog.ID{rows[0].ID, rows[1].ID, rows[3].ID, rows[5].ID, rows[6].ID, rows[7].ID}, idsOf(found.Mine),
		"two of each tenant, and those without a tenant")
	assert.Equal(t, []processlog.ID{rows[2].ID, rows[4].ID}, limitedIDs(found))
	assert.Equal(t, "a", found.Limited[0].Key)
	assert.NotContains(t, found.Rooms, "", "no row is read for entries that are not limited")
	assert.Equal(t, 3, found.Rooms["b"].Permits)
}

// The second claim finds the rows of the keys that the first claim has stored.
func (t *storeTest) eachKeyIsCountedByItself() {
	limit := processlog.StartLimit{Name: "counts", Interval: time.Hour, Burst: 8, Concurrent: 9, Key: byBusinessID}
	starts := map[string]int{"a": 1, "b": 2, "c": 2, "d": 3}
	for claim := 1; claim <= 2; claim++ {
		var drafts []processlog.Draft
		for _, key := range []string{"a", "b", "c", "d"} {
			for range starts[key] {
				draft := t.draft("counts")
				draft.BusinessID = key
				drafts = append(drafts, draft)
			}
		}
		found := t.claimLimited(limit, token(byte(claim)), time.Minute, idsOf(t.insert(drafts...))...)
		require.Len(t, found.Mine, len(drafts))
		for key, n := range starts {
			assert.Equal(t, limit.Burst-claim*n, found.Rooms[key].Starts, key)
			assert.Equal(t, limit.Concurrent-claim*n, found.Rooms[key].Permits, key)
			stored, err := t.ops().LimitedKey(t.ctx, processlog.StoredLimit{Name: limit.Name, Program: limit.Values()}, key)
			require.NoError(t, err)
			assert.Equal(t, limit.Burst-claim*n, stored.Starts, key)
			assert.Len(t, stored.Holders, claim*n, key)
		}
	}
}

func (t *storeTest) startsTakenInAdvanceAreCounted() {
	limit := processlog.StartLimit{Name: "advance", Interval: time.Hour, Burst: 9, Keyed: true, Key: byBusinessID}
	left := func(key string) int {
		stored, err := t.ops().LimitedKey(t.ctx, processlog.StoredLimit{Name: limit.Name, Program: limit.Values()}, key)
		require.NoError(t, err)
		return stored.Starts
	}
	asked := make(map[string][]int)
	limit.Advance = func(key string, left int) int {
		asked[key] = append(asked[key], left)
		return map[string]int{"a": 2, "b": 100, "c": 0}[key]
	}
	drafts := t.drafts("advance", 7)
	for i, key := range []string{"a", "a", "b", "c", "a", "a", "b"} {
		drafts[i].BusinessID = key
	}
	ids := idsOf(t.insert(drafts...))
	found := t.claimLimited(limit, token(1), time.Minute, ids[:4]...)
	require.Len(t, found.Mine, 4)
	require.Equal(t, map[string][]int{"a": {7}, "b": {8}, "c": {8}}, asked)
	for key, want := range map[string][2]int{"a": {2, 5}, "b": {8, 0}, "c": {0, 8}} {
		require.Equal(t, want, [2]int{found.Rooms[key].Advance, found.Rooms[key].Starts}, key)
		require.Equal(t, want[1], left(key), key)
	}
	again := t.claimLimited(limit, token(2), time.Minute, ids[4], ids[6])
	require.Equal(t, ids[4:5], idsOf(again.Mine), "the starts of b are used up")
	require.Equal(t, ids[6:], limitedIDs(again))
	require.Equal(t, []int{7, 4}, asked["a"])
	require.Equal(t, 2, left("a"))
	require.Equal(t, []int{8}, asked["b"])

	// ReturnStarts ignores a key if a later claim has taken starts of this key. This call returns starts of the first
	// claim. The second claim has taken starts of key "a", so only the starts of key "b" come back.
	require.NoError(t, t.Store.ReturnStarts(t.ctx, limit, map[string]processlog.Unused{"a": {Starts: 2, Granted: found.Rooms["a"].Granted}, "b": {Starts: 8, Granted: found.Rooms["b"].Granted}}))
	require.Equal(t, 2, left("a"))
	require.Equal(t, 8, left("b"))
	require.NoError(t, t.Store.ReturnStarts(t.ctx, limit, map[string]processlog.Unused{"a": {Starts: 2, Granted: again.Rooms["a"].Granted}}))
	require.Equal(t, 4, left("a"))

	// A claim does not call StartLimit.Advance in two cases: the entry needs no permit, or the field Concurrent of the
	// limit is set.
	clear(asked)
	free := limit
	free.Key = func(*processlog.Row) (string, bool, bool) { return "a", false, true }
	require.Empty(t, t.claimLimited(free, token(3), time.Minute, ids[5]).Rooms)
	limit.Concurrent = 5
	require.Zero(t, t.claimLimited(limit, token(4), time.Minute, ids[6]).Rooms["b"].Advance)
	require.Empty(t, asked)
}

func (t *storeTest) limitIsSharedByItsName() {
	limit := processlog.StartLimit{Name: "shared", Interval: time.Hour, Burst: 3}
	one, two := idsOf(t.insert(t.drafts("one", 2)...)), idsOf(t.insert(t.drafts("two", 2)...))
	assert.Len(t, t.claimLimited(limit, token(1), time.Minute, one...).Mine, 2)
	assert.Len(t, t.claimLimited(limit, token(2), time.Minute, two...).Mine, 1)
	limit.Name = "Shared"
	assert.Len(t, t.claimLimited(limit, token(3), time.Minute, two[1]).Mine, 1, "another name is another limit")
}

func (t *storeTest) entryWithoutAPermitIsUnchanged() {
	limit := processlog.StartLimit{Name: "unchanged", Concurrent: 1}
	rows := t.insert(t.drafts("unchanged", 2)...)
	found := t.claimLimited(limit, token(1), time.Minute, idsOf(rows)...)
	require.Len(t, found.Mine, 1)
	t.assertFollows(rows[0], found.Mine[0])
	require.Equal(t, []processlog.ID{rows[1].ID}, limitedIDs(found))
	after := t.load(rows[1].ID)
	assert.Equal(t, []any{rows[1].Version, rows[1].DeliveryCount, rows[1].Token}, []any{after.Version, after.DeliveryCount, after.Token})
	assert.LessOrEqual(t, after.LeaseLeft, time.Duration(0))
}

func (t *storeTest) entryThatIsNotClaimedTakesNoPermit() {
	limit := processlog.StartLimit{Name: "refused", Interval: time.Hour, Burst: 1, Concurrent: 1, Key: func(row *processlog.Row) (string, bool, bool) {
		return "k", true, row.BusinessID != "bad"
	}}
	drafts := t.drafts("refused", 4)
	drafts[0].BusinessID = "bad"
	drafts[1].Delay = time.Hour
	rows := t.insert(drafts...)
	wanted := make([]processlog.Wanted, len(rows))
	for i, row := range rows {
		wanted[i].ID = row.ID
	}
	found, err := t.Store.ClaimLimited(t.ctx, wanted, token(1), time.Minute, limit, func(row *processlog.Row) bool { return row.ID != rows[2].ID })
	require.NoError(t, err)
	assert.Equal(t, []processlog.ID{rows[3].ID}, idsOf(found.Mine))
	assert.ElementsMatch(t, []processlog.ID{rows[0].ID, rows[2].ID}, idsOf(found.Skipped))
	assert.Empty(t, found.Limited)
	none, err := t.Store.ClaimLimited(t.ctx, nil, token(1), time.Minute, limit, all)
	require.NoError(t, err)
	assert.Empty(t, none.Rooms)
}

func (t *storeTest) startThatIsReturnedIsGrantedAgain() {
	limit := processlog.StartLimit{Name: "returned", Interval: time.Hour, Burst: 2}
	ids := idsOf(t.insert(t.drafts("returned", 4)...))
	found := t.claimLimited(limit, token(1), time.Minute, ids...)
	require.Len(t, found.Mine, 2)
	require.NoError(t, t.Store.ReturnStarts(t.ctx, limit, map[string]processlog.Unused{"": {Starts: 1, Granted: found.Rooms[""].Granted}, "without a row": {Starts: 3}}))
	assert.Len(t, t.claimLimited(limit, token(2), time.Minute, ids[2:]...).Mine, 1)
	require.NoError(t, t.Store.ReturnStarts(t.ctx, limit, nil))
	require.NoError(t, t.Store.CheckLimits(t.ctx))
	assert.Empty(t, t.claimLimited(limit, token(3), time.Minute, ids[2:]...).Mine)
}

// ReturnStarts must accept only starts of the last claim. If it also took back a start of an earlier claim, a key could
// grant more starts at once than its burst.
func (t *storeTest) startOfAnEarlierClaimIsNotReturned() {
	limit := processlog.StartLimit{Name: "earlier", Interval: time.Hour, Burst: 3}
	ids := idsOf(t.insert(t.drafts("earlier", 5)...))
	first := t.claimLimited(limit, token(1), time.Minute, ids[:1]...)
	second := t.claimLimited(limit, token(2), time.Minute, ids[1:3]...)
	require.Equal(t, []int64{1, 3}, []int64{first.Rooms[""].Granted, second.Rooms[""].Granted})
	require.NoError(t, t.Store.ReturnStarts(t.ctx, limit, map[string]processlog.Unused{"": {Starts: 1, Granted: first.Rooms[""].Granted}}))
	assert.Empty(t, t.claimLimited(limit, token(3), time.Minute, ids[3:]...).Mine)
	for range 2 {
		require.NoError(t, t.Store.ReturnStarts(t.ctx, limit, map[string]processlog.Unused{"": {Starts: 1, Granted: second.Rooms[""].Granted}}))
	}
	assert.Len(t, t.claimLimited(limit, token(4), time.Minute, ids[3:]...).Mine, 2)
}

// PurgeLimitKeys deletes the row of an idle key, and the next claim creates a new row. The new row must allow no more
// starts than the deleted row. It must not take back starts that the deleted row has granted.
func (t *storeTest) idleKeysAreDeletedWithoutAGrantTooMany() {
	const idle = 20 * time.Millisecond
	limit := processlog.StartLimit{Name: "idle", Interval: idle, Burst: 2, Keyed: true, Key: byBusinessID}
	drafts := t.drafts("idle", 6)
	for i, tenant := range []string{"a", "b", "c", "a", "a", "b"} {
		drafts[i].BusinessID = tenant
	}
	rows := t.insert(drafts...)
	ids := idsOf(rows)
	hour := limit
	hour.Name, hour.Interval, hour.Concurrent = "hour", time.Hour, 1
	first := t.claimLimited(limit, token(1), time.Minute, ids[0])
	require.Len(t, first.Mine, 1)
	require.Len(t, t.claimLimited(hour, token(2), time.Minute, ids[1]).Mine, 1, "it uses up the rate for an hour")
	running := limit
	running.Name, running.Concurrent = "running", 1
	held := t.claimLimited(running, token(3), time.Minute, ids[2]).Mine
	require.Len(t, held, 1)
	n, err := t.Store.PurgeLimitKeys(t.ctx, time.Hour)
	require.NoError(t, err)
	require.Zero(t, n, "each key was granted a start within the hour")
	deleted := 0
	purge := func() bool {
		n, err := t.Store.PurgeLimitKeys(t.ctx, idle)
		require.NoError(t, err)
		deleted += n
		return deleted == 1
	}
	t.waitUntil(purge, "the stored time of one key passes")
	n, err = t.Store.PurgeLimitKeys(t.ctx, idle)
	require.NoError(t, err)
	require.Zero(t, n, "one key is used up for an hour, and an entry holds a permit of the other one")

	slow := limit
	slow.Interval, slow.Burst = time.Hour, 1
	require.Len(t, t.claimLimited(slow, token(4), time.Minute, ids[3]).Mine, 1)
	require.NoError(t, t.Store.ReturnStarts(t.ctx, slow, map[string]processlog.Unused{"a": {Starts: 1, Granted: first.Rooms["a"].Granted}}))
	require.Empty(t, t.claimLimited(slow, token(5), time.Minute, ids[4]).Mine, "the start of the deleted row is not returned to the new one")

	require.True(t, t.settle(token(7), outcome(held[0], processlog.Succeeded)).Applied)
	deleted = 0
	t.waitUntil(purge, "the permit ends")
	require.Empty(t, t.claimLimited(hour, token(8), time.Minute, ids[5]).Mine)
	limits, err := t.ops().Limits(t.ctx, "")
	require.NoError(t, err)
	require.Len(t, limits, 3, "the limits themselves stay")
	limits, err = t.ops().Limits(t.ctx, "hour")
	require.NoError(t, err)
	require.Len(t, limits, 1)
}

func (t *storeTest) permitEndsWithTheOutcome() {
	limit := processlog.StartLimit{Name: "outcome", Concurrent: 2}
	ids := idsOf(t.insert(t.drafts("outcome", 5)...))
	mine := t.claimLimited(limit, token(1), time.Minute, ids...).Mine
	require.Len(t, mine, 2)
	require.True(t, t.settle(token(2), outcome(mine[0], processlog.Succeeded)).Applied)
	next := t.claimLimited(limit, token(3), time.Minute, ids[2:]...)
	require.Equal(t, ids[2:3], idsOf(next.Mine), "an outcome frees one permit")
	t.release(token(3), ids[2:3]...)
	next = t.claimLimited(limit, token(4), time.Minute, ids[2:]...)
	require.Len(t, next.Mine, 1, "and so does a release")
	assert.Zero(t, next.Rooms[""].Permits)
	t.change(mine[1].ID, processlog.ActionCancel)
	assert.Len(t, t.claimLimited(limit, token(5), time.Minute, ids[3:]...).Mine, 1, "and a person")
}

func (t *storeTest) permitLastsAsLongAsTheLease() {
	limit := processlog.StartLimit{Name: "lease", Concurrent: 1}
	ids := idsOf(t.insert(t.drafts("lease", 2)...))
	const lease = 2 * time.Second
	mine := t.claimLimited(limit, token(1), lease, ids[0]).Mine
	require.Len(t, mine, 1)
	began := time.Now()
	lost, err := t.Store.Renew(t.ctx, []processlog.Held{{ID: ids[0], Version: mine[0].Version}}, lease+lease/4)
	require.NoError(t, err)
	require.Empty(t, lost.Lost)
	t.waitUntil(func() bool { return len(t.claimLimited(limit, token(2), time.Minute, ids[1]).Mine) == 1 }, "the lease ends")
	assert.Greater(t, time.Since(began), lease+lease/4-time.Millisecond, "a renewed lease keeps its permit") // A store counts whole milliseconds.
}

func (t *storeTest) permitWhoseLeaseHasEndedCannotComeBack() {
	const lease = 50 * time.Millisecond
	limit := processlog.StartLimit{Name: "fence", Concurrent: 1}
	ids := idsOf(t.insert(t.drafts("fence", 3)...))
	old := t.claimLimited(limit, token(1), lease, ids[0]).Mine
	require.Len(t, old, 1)
	t.waitUntil(func() bool { return len(t.claimLimited(limit, token(2), time.Minute, ids[1]).Mine) == 1 }, "the lease ends")
	left, err := t.Store.Renew(t.ctx, []processlog.Held{{ID: ids[0], Version: old[0].Version}}, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, ids[:1], left.Lost, "two entries would hold one permit")
	failed := outcome(old[0], processlog.Retrying)
	failed.LastError, failed.ProcessCount = "late", 1
	assert.False(t, t.settle(token(3), failed).Applied)
	success := outcome(old[0], processlog.Succeeded)
	assert.True(t, t.settle(token(4), success).Applied, "a success stays true")

	alone := processlog.StartLimit{Name: "alone", Concurrent: 1}
	first := t.claimLimited(alone, token(5), lease, ids[2]).Mine
	require.Len(t, first, 1)
	t.waitUntil(func() bool { return len(t.claimLimited(alone, token(6), time.Minute, ids[2]).Mine) == 1 }, "the lease ends")
	assert.Equal(t, 2, t.load(ids[2]).DeliveryCount, "the lost lease counts")
}

func (t *storeTest) claimsAtOnceNeverGrantMore() {
	limit := processlog.StartLimit{Name: "at once", Interval: time.Hour, Burst: 7, Concurrent: 5, Key: byBusinessID}
	drafts := t.drafts("at once", 60)
	for i := range drafts {
		drafts[i].BusinessID = fmt.Sprintf("k%d", i%3)
	}
	rows := t.insert(drafts...)
	var mu sync.Mutex
	granted := make(map[string]int)
	var claims sync.WaitGroup
	for by := range 6 {
		claims.Go(func() {
			for chunk := range slices.Chunk(rows[by*10:by*10+10], 5) {
				want := make([]processlog.Wanted, len(chunk))
				for i := range chunk {
					want[i].ID = chunk[i].ID
				}
				found, err := t.Store.ClaimLimited(t.ctx, want, token(byte(by+1)), time.Minute, limit, all)
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				for _, row := range found.Mine {
					granted[row.BusinessID]++
				}
				mu.Unlock()
			}
		})
	}
	claims.Wait()
	assert.Equal(t, map[string]int{"k0": 5, "k1": 5, "k2": 5}, granted)
}

func (t *storeTest) entryThatTheDatabaseRefusesTakesNoStart() {
	if t.Refuse == nil {
		t.Skip("the harness cannot make the database refuse rows")
	}
	limit := processlog.StartLimit{Name: "trigger", Interval: time.Hour, Burst: 2, Concurrent: 2}
	ids := idsOf(t.insert(t.drafts("trigger", 4)...))
	t.Refuse(t.T, ids[:1])
	found := t.claimLimited(limit, token(1), time.Minute, ids...)
	require.Len(t, found.Refused, 1)
	assert.Equal(t, ids[0], found.Refused[0].ID)
	mine := idsOf(found.Mine)
	// A store may take a permit for the first row, and the database then refuses to write this row. After that, the
	// store returns the permit. The first claim can no longer use it for another row, so claim a second time.
	mine = append(mine, idsOf(t.claimLimited(limit, token(1), time.Minute, ids[1:]...).Mine)...)
	assert.Equal(t, ids[1:3], mine)
	assert.Empty(t, t.claimLimited(limit, token(2), time.Minute, ids[1:]...).Mine)
}

func (t *storeTest) limitsAreClaimedBesideALockedEntry() {
	limit := processlog.StartLimit{Name: "locked", Concurrent: 1}
	ids := idsOf(t.insert(t.drafts("locked", 2)...))
	const lease = 50 * time.Millisecond
	require.Len(t, t.claimLimited(limit, token(1), lease, ids[0]).Mine, 1)
	tx := t.begin()
	change := newChange(ids[0], processlog.ActionCancel)
	_, err := t.Store.Change(t.ctx, tx, false, change)
	require.NoError(t, err)
	// The row of the entry that holds the permit is locked, so its permit cannot be taken away.
	assert.Empty(t, t.claimLimited(limit, token(2), time.Minute, ids[1]).Mine)
	require.NoError(t, tx.Commit())
	t.waitUntil(func() bool { return len(t.claimLimited(limit, token(2), time.Minute, ids[1]).Mine) == 1 }, "the cancelled entry has no permit")
}

func (t *storeTest) limitsAreReadAsTheLastClaimHadThem() {
	found, err := t.ops().Limits(t.ctx, "")
	require.NoError(t, err)
	require.Empty(t, found)
	one, two := t.insert(t.drafts("one", 2)...), t.insert(t.drafts("two", 2)...)
	limit := processlog.StartLimit{Name: "read", Interval: time.Hour, Burst: 3, Concurrent: 2}
	t.claimLimited(limit, token(1), time.Minute, one[0].ID)
	mine := t.claimLimited(limit, token(2), time.Minute, two[0].ID).Mine
	keyed := processlog.StartLimit{Name: "keyed", Concurrent: 7, Keyed: true, Key: func(*processlog.Row) (string, bool, bool) { return "a", true, true }}
	t.claimLimited(keyed, token(3), time.Minute, one[1].ID)
	keyed.Concurrent = 1
	t.claimLimited(keyed, token(3), time.Minute, two[1].ID)
	found, err = t.ops().Limits(t.ctx, "")
	require.NoError(t, err)
	require.Equal(t, []processlog.StoredLimit{
		{Name: "keyed", Types: []string{"one", "two"}, Keyed: true, Program: processlog.LimitValues{Concurrent: 1}},
		{Name: "read", Types: []string{"one", "two"}, Program: processlog.LimitValues{Interval: time.Hour, Burst: 3, Concurrent: 2}},
	}, found)
	require.True(t, t.settle(token(4), outcome(mine[0], processlog.Succeeded)).Applied)
	state, err := t.ops().LimitedKey(t.ctx, found[1], "")
	require.NoError(t, err)
	assert.Equal(t, 1, state.Starts)
	assert.Positive(t, state.Next)
	assert.LessOrEqual(t, state.Next, time.Hour)
	assert.Equal(t, []processlog.PermitHolder{{ID: one[0].ID, BusinessType: "one"}}, state.Holders, "the permit of the other entry has ended")
	state, err = t.ops().LimitedKey(t.ctx, found[0], "a")
	require.NoError(t, err)
	assert.Equal(t, []any{processlog.Unbounded, 1}, []any{state.Starts, len(state.Holders)})
	state, err = t.ops().LimitedKey(t.ctx, found[0], "none has this key")
	require.NoError(t, err)
	assert.Empty(t, state.Holders)
}

func (t *storeTest) putLimit(name string, values processlog.LimitValues) {
	t.Helper()
	limits, err := t.ops().Limits(t.ctx, "")
	require.NoError(t, err)
	at := slices.IndexFunc(limits, func(l processlog.StoredLimit) bool { return l.Name == name })
	require.GreaterOrEqual(t, at, 0)
	limit := limits[at]
	limit.Person, limit.Actor, limit.Reason = values, "mei", "the PSP is slow"
	require.NoError(t, t.ops().PutLimit(t.ctx, limit, processlog.Operation{Actor: "mei", Action: "change limit", BusinessType: "a", Subject: name, Reason: "the PSP is slow"}))
}

func (t *storeTest) limitThatAPersonChangesIsObeyedByTheNextClaim() {
	unknown := processlog.StoredLimit{Name: "changed", Person: processlog.LimitValues{Burst: 2}}
	require.ErrorIs(t, t.ops().PutLimit(t.ctx, unknown), processlog.ErrChanged, "nobody has claimed under it")
	limit := processlog.StartLimit{Name: "changed", Interval: time.Hour, Burst: 2, Concurrent: 4}
	ids := idsOf(t.insert(t.drafts("changed", 12)...))
	found := t.claimLimited(limit, token(1), time.Minute, ids...)
	require.Len(t, found.Mine, 2)
	require.Equal(t, &processlog.LimitValues{Interval: time.Hour, Burst: 2, Concurrent: 4}, found.InForce)
	t.putLimit("changed", processlog.LimitValues{Burst: 5})
	found = t.claimLimited(limit, token(2), time.Minute, ids[2:]...)
	require.Equal(t, &processlog.LimitValues{Interval: time.Hour, Burst: 5, Concurrent: 4}, found.InForce)
	require.Len(t, found.Mine, 2, "three starts are free, and two permits")
	t.putLimit("changed", processlog.LimitValues{Burst: 9, Concurrent: 3})
	require.Empty(t, t.claimLimited(limit, token(3), time.Minute, ids[4:]...).Mine, "four run")
	t.putLimit("changed", processlog.LimitValues{Burst: 9, Concurrent: 6})
	require.Len(t, t.claimLimited(limit, token(4), time.Minute, ids[4:]...).Mine, 2)
	limits, err := t.ops().Limits(t.ctx, "")
	require.NoError(t, err)
	require.Len(t, limits, 1)
	assert.WithinDuration(t, time.Now(), limits[0].At, time.Hour)
	limits[0].At = time.Time{}
	require.Equal(t, processlog.StoredLimit{Name: "changed", Types: []string{"changed"}, Program: limit.Values(), Person: processlog.LimitValues{Burst: 9, Concurrent: 6},
		Version: 3, Actor: "mei", Reason: "the PSP is slow"}, limits[0])
	limits[0].Version--
	require.ErrorIs(t, t.ops().PutLimit(t.ctx, limits[0]), processlog.ErrChanged)
	t.putLimit("changed", processlog.LimitValues{})
	found = t.claimLimited(limit, token(5), time.Minute, ids[6:]...)
	require.Empty(t, found.Mine, "the program's own limit is in force")
	require.Equal(t, limit.Values(), *found.InForce)
	page, err := t.ops().AuditLog(t.ctx, processlog.AuditLogFilter{Action: "change limit"})
	require.NoError(t, err)
	assert.Len(t, page.Records, 4, "a refused change leaves no record")
}

func (t *storeTest) changedRateKeepsTheStartsThatAKeyHasAhead() {
	limit := processlog.StartLimit{Name: "rate", Interval: time.Hour, Burst: 3}
	ids := idsOf(t.insert(t.drafts("rate", 12)...))
	require.Len(t, t.claimLimited(limit, token(1), time.Minute, ids[:2]...).Mine, 2)
	t.putLimit("rate", processlog.LimitValues{Interval: 24 * time.Hour})
	found := t.claimLimited(limit, token(2), time.Minute, ids[2:]...)
	require.Len(t, found.Mine, 1, "two of three starts are ahead, as before")
	require.Greater(t, found.Rooms[""].Next, 23*time.Hour)
	require.Empty(t, t.claimLimited(limit, token(2), time.Minute, ids[3:]...).Mine, "all three are ahead at the new rate")
	t.putLimit("rate", processlog.LimitValues{Interval: time.Millisecond})
	t.waitUntil(func() bool { return len(t.claimLimited(limit, token(3), time.Minute, ids[3:4]...).Mine) == 1 }, "a higher rate holds at once")
	t.putLimit("rate", processlog.LimitValues{Interval: time.Hour, Burst: 1})
	require.LessOrEqual(t, len(t.claimLimited(limit, token(4), time.Minute, ids[4:]...).Mine), 1)
	require.Empty(t, t.claimLimited(limit, token(5), time.Minute, ids[6:]...).Mine)
}
