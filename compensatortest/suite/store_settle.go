package suite

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

func (t *storeTest) outcomesGoWhereTheContractSays() {
	type step struct{ from, to processlog.State }
	for _, s := range []step{
		{processlog.Pending, processlog.Succeeded}, {processlog.Retrying, processlog.Succeeded},
		{processlog.Pending, processlog.Retrying}, {processlog.Retrying, processlog.Retrying},
		{processlog.Pending, processlog.Compensating}, {processlog.Retrying, processlog.Compensating},
		{processlog.Pending, processlog.Dead}, {processlog.Retrying, processlog.Dead},
		{processlog.Compensating, processlog.Compensated}, {processlog.Compensating, processlog.Compensating},
		{processlog.Compensating, processlog.Dead}, {processlog.Pending, processlog.Pending},
	} {
		before := t.inState(s.from)
		claimed := t.claim(before.ID, token(1), time.Minute)
		o := outcome(claimed, s.to)
		o.ProcessCount, o.CompensateCount, o.After, o.LastError = 3, 2, 90*time.Second, "why"
		if s.to.Terminal() {
			o.After = 0
		}
		failures, undoFailures := o.ProcessCount, o.CompensateCount
		if s.to == processlog.Succeeded || s.to == processlog.Compensated { // A success changes no counts.
			failures, undoFailures = claimed.ProcessCount, claimed.CompensateCount
		}
		require.True(t, t.settle(token(2), o).Applied, "%s to %s", s.from, s.to)
		row := t.load(before.ID)
		t.assertFollows(claimed, row)
		assert.Equal(t, []any{s.to, failures, undoFailures, 0, "why", o.EndedBy}, []any{row.State, row.ProcessCount, row.CompensateCount, row.DeliveryCount, row.LastError, row.EndedBy}, "%s to %s", s.from, s.to)
		assert.LessOrEqual(t, row.LeaseLeft, time.Duration(0))
		if s.to.Terminal() {
			assert.LessOrEqual(t, row.DueIn, time.Duration(0), "the entry was settled now")
		} else {
			assert.Greater(t, row.DueIn, time.Minute)
		}
	}
}

const farthest = 100 * 365 * 24 * time.Hour

// Failure: F54
func (t *storeTest) outcomeOfTheLongestWaitIsStoredAsGiven() {
	claimed := t.claim(t.insertOne("far").ID, token(1), time.Minute)
	o := outcome(claimed, processlog.Retrying)
	o.After = farthest
	require.True(t, t.settle(token(2), o).Applied)
	row := t.load(claimed.ID)
	t.assertFollows(claimed, row)
	assert.InDelta(t, farthest, row.DueIn, float64(time.Hour))
	assert.WithinDuration(t, row.UpdatedAt.Add(farthest), row.NextAt, time.Second)
	found, err := t.Store.Claim(t.ctx, []processlog.Wanted{{ID: row.ID}}, token(3), time.Minute, all)
	require.NoError(t, err)
	require.Len(t, found.Waiting, 1)
	assert.InDelta(t, farthest, found.Waiting[0].In, float64(time.Hour))
}

func (t *storeTest) fencedOutcomeOfAStaleClaimIsDropped() {
	row := t.insertOne("stale")
	first := t.claim(row.ID, token(1), 50*time.Millisecond)
	var second processlog.Row
	t.waitUntil(func() bool {
		found, err := t.Store.Claim(t.ctx, []processlog.Wanted{{ID: row.ID}}, token(2), time.Minute, all)
		if err == nil && len(found.Mine) == 1 {
			second = found.Mine[0]
		}
		return second.ID == row.ID
	}, "the lease ends")
	stale := outcome(first, processlog.Dead)
	stale.EndedBy = processlog.EndedByExhausted
	got := t.settle(token(3), stale)
	assert.Equal(t, processlog.Settled{State: processlog.Pending}, got)
	assert.Equal(t, second.Version, t.load(row.ID).Version)
	require.True(t, t.settle(token(4), outcome(second, processlog.Succeeded)).Applied)
	missing := outcome(second, processlog.Succeeded)
	missing.ID = processlog.RowID(1 << 40)
	assert.Equal(t, processlog.Settled{Missing: true}, t.settle(token(5), missing))
}

func (t *storeTest) successIsAbsorbedWithinItsEpochOnly() {
	row := t.insertOne("absorb")
	first := t.claim(row.ID, token(1), time.Minute)
	t.change(row.ID, processlog.ActionReschedule) // This keeps the epoch.
	success := outcome(first, processlog.Succeeded)
	assert.True(t, t.settle(token(2), success).Applied)

	other := t.insertOne("absorb")
	second := t.claim(other.ID, token(1), time.Minute)
	t.settle(token(3), outcome(second, processlog.Retrying))
	t.change(other.ID, processlog.ActionRequeue)
	success = outcome(second, processlog.Succeeded)
	assert.Equal(t, processlog.Settled{State: processlog.Pending}, t.settle(token(4), success), "the outcome belongs to the epoch before")

	third := t.inState(processlog.Cancelled)
	success = outcome(third, processlog.Succeeded)
	assert.Equal(t, processlog.Settled{State: processlog.Cancelled, EndedBy: processlog.EndedByCancel}, t.settle(token(5), success))
}

// After a restore from a backup, a new entry gets the id of a lost entry.
func (t *storeTest) outcomeNeverEndsAnEntryThatGotItsID() {
	for _, to := range []processlog.State{processlog.Succeeded, processlog.Retrying, processlog.Dead} {
		lost := t.claim(t.insertOne("lost").ID, token(1), time.Minute)
		lost.IdempotencyKey += " of another history"
		success := outcome(lost, to)
		assert.Equal(t, processlog.Settled{Missing: true}, t.settle(token(2), success), "to %s", to)
		tx := t.begin()
		assert.ErrorIs(t, t.Store.SettleTx(t.ctx, tx, token(3), success), processlog.ErrLeaseLost, "to %s", to)
		require.NoError(t, tx.Rollback())
		assert.Equal(t, lost.Version, t.load(lost.ID).Version, "to %s", to)
	}
}

func (t *storeTest) settlingTwiceUnderOneTokenAppliesOnce() {
	a, b := t.insertOne("twice"), t.insertOne("twice")
	failed := outcome(t.claim(a.ID, token(1), time.Minute), processlog.Retrying)
	failed.ProcessCount, failed.LastError = 1, "once"
	success := outcome(t.claim(b.ID, token(1), time.Minute), processlog.Succeeded)
	outcomes := []processlog.Outcome{failed, success}
	for range 2 {
		answers, err := t.Store.Settle(t.ctx, token(2), outcomes)
		require.NoError(t, err)
		assert.True(t, answers[0].Applied && answers[1].Applied, "%+v", answers)
	}
	assert.Equal(t, 1, t.load(a.ID).ProcessCount)
	assert.Equal(t, failed.Version+1, t.load(a.ID).Version)
	assert.Equal(t, success.Version+1, t.load(b.ID).Version)
}

func (t *storeTest) anyErrorTextIsStored() {
	for _, text := range []string{"", "it's \"quoted\" \\ and `ticked`", "\xff\xfe\x00", strings.Repeat("ü😀", 1<<19), "%s ? :x", "line\nline"} {
		row := t.insertOne("texts")
		o := outcome(t.claim(row.ID, token(1), time.Minute), processlog.Retrying)
		o.ProcessCount, o.LastError = 1, text
		require.True(t, t.settle(token(2), o).Applied)
		stored := t.load(row.ID).LastError
		assert.True(t, utf8.ValidString(stored))
		assert.LessOrEqual(t, utf8.RuneCountInString(stored), 1000)
		if utf8.ValidString(text) && utf8.RuneCountInString(text) <= 1000 {
			assert.Equal(t, text, stored)
		}
	}
}

func (t *storeTest) settleTxCommitsWithItsTransaction() {
	row := t.insertOne("tx")
	claimed := t.claim(row.ID, token(1), time.Minute)
	for _, end := range []string{"rollback", "commit"} {
		tx, err := t.Store.Begin(t.ctx)
		require.NoError(t, err)
		require.NoError(t, t.Store.SettleTx(t.ctx, tx, token(2), outcome(claimed, processlog.Succeeded)))
		if end == "rollback" {
			require.NoError(t, tx.Rollback())
			assert.Equal(t, claimed.Version, t.load(row.ID).Version)
			continue
		}
		require.NoError(t, tx.Commit())
		assert.Equal(t, processlog.Succeeded, t.load(row.ID).State)
	}
}

func (t *storeTest) settleTxIsFenced() {
	row := t.insertOne("tx")
	claimed := t.claim(row.ID, token(1), time.Minute)
	t.change(row.ID, processlog.ActionReschedule)
	tx, err := t.Store.Begin(t.ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	o := outcome(claimed, processlog.Succeeded)
	require.ErrorIs(t, t.Store.SettleTx(t.ctx, tx, token(2), o), processlog.ErrLeaseLost)
}
