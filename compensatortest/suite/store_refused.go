package suite

import (
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

var refusalPromises = []storePromise{
	{"RefusedClaimHoldsUpNoOther", false, (*storeTest).refusedClaimHoldsUpNoOther},
	{"RefusedReleaseAndRenewalHoldUpNoOther", false, (*storeTest).refusedReleaseAndRenewalHoldUpNoOther},
	{"RefusedOutcomeHoldsUpNoOther", false, (*storeTest).refusedOutcomeHoldsUpNoOther},
}

// besideRefused makes the database refuse two of the entries.
func (t *storeTest) besideRefused() (rows []processlog.Row, ids, refused []processlog.ID) {
	if t.Refuse == nil {
		t.Skip("Harness.Refuse is nil")
	}
	for range 9 {
		rows = append(rows, t.insertOne("refused"))
		ids = append(ids, rows[len(rows)-1].ID)
	}
	return rows, ids, []processlog.ID{ids[2], ids[8]}
}

func refusedIDs(list []processlog.Refusal) (ids []processlog.ID) {
	for _, r := range list {
		ids = append(ids, r.ID)
	}
	slices.SortFunc(ids, processlog.ID.Compare)
	return ids
}

func (t *storeTest) refusedClaimHoldsUpNoOther() {
	before, ids, refused := t.besideRefused()
	want := make([]processlog.Wanted, len(ids))
	for i, id := range ids {
		want[i].ID = id
	}
	allow := t.Refuse(t.T, refused)
	found, err := t.Store.Claim(t.ctx, want, token(1), time.Minute, all)
	require.NoError(t, err)
	assert.Equal(t, refused, refusedIDs(found.Refused))
	require.Error(t, found.Refused[0].Err)
	require.Len(t, found.Mine, len(ids)-len(refused))
	for _, row := range found.Mine {
		assert.Equal(t, t.load(row.ID).Version, row.Version)
		assert.Equal(t, 1, row.DeliveryCount)
	}
	assert.Empty(t, found.Waiting)
	assert.Equal(t, before[2].Version, t.load(refused[0]).Version, "the refused row is unchanged")
	allow()
	found, err = t.Store.Claim(t.ctx, want, token(2), time.Minute, all)
	require.NoError(t, err)
	assert.Len(t, found.Mine, len(refused))
	assert.Empty(t, found.Refused)
}

func (t *storeTest) refusedReleaseAndRenewalHoldUpNoOther() {
	_, ids, refused := t.besideRefused()
	rows := t.claimAll(token(1), time.Minute, ids...)
	held := make([]processlog.Held, len(rows))
	for i, row := range rows {
		held[i] = processlog.Held{ID: row.ID, Version: row.Version}
	}
	allow := t.Refuse(t.T, refused)
	left, err := t.Store.Renew(t.ctx, held, 3*time.Hour)
	require.NoError(t, err)
	assert.Equal(t, refused, refusedIDs(left.Refused))
	assert.Empty(t, left.Lost)
	assert.Empty(t, left.Busy)
	t.assertLease(3*time.Hour, t.load(ids[0]).LeaseLeft)
	assert.LessOrEqual(t, t.load(refused[0]).LeaseLeft, time.Minute)

	unreleased, err := t.Store.Release(t.ctx, ids, token(1))
	require.NoError(t, err)
	assert.Empty(t, unreleased.Busy)
	assert.Equal(t, refused, refusedIDs(unreleased.Refused))
	for _, id := range ids {
		assert.Equal(t, slices.Contains(refused, id), t.load(id).LeaseLeft > 0, "%v", id)
	}
	allow()
	t.release(token(1), ids...)
	assert.LessOrEqual(t, t.load(refused[0]).LeaseLeft, time.Duration(0))
}

func (t *storeTest) refusedOutcomeHoldsUpNoOther() {
	_, ids, refused := t.besideRefused()
	rows := t.claimAll(token(1), time.Minute, ids...)
	outcomes := make([]processlog.Outcome, len(rows))
	for i, row := range rows {
		outcomes[i] = outcome(row, processlog.Succeeded)
	}
	allow := t.Refuse(t.T, refused)
	answers, err := t.Store.Settle(t.ctx, token(2), outcomes)
	require.NoError(t, err)
	for i, answer := range answers {
		if slices.Contains(refused, outcomes[i].ID) {
			assert.Error(t, answer.Refused)
			assert.False(t, answer.Applied || answer.Busy || answer.Missing, "%+v", answer)
			assert.False(t, t.load(outcomes[i].ID).State.Terminal())
			continue
		}
		assert.True(t, answer.Applied, "%+v", answer)
	}
	allow()
	answers, err = t.Store.Settle(t.ctx, token(2), outcomes)
	require.NoError(t, err)
	for i, answer := range answers {
		assert.True(t, answer.Applied, "%d: %+v", i, answer)
	}
}
