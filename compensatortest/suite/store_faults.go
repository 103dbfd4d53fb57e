package suite

import (
	"errors"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

var faultPromises = []storePromise{
	{"FaultsOfAnOutcomeComeWithTheNextClaim", false, (*storeTest).faultsOfAnOutcomeComeWithTheNextClaim},
	{"FaultsOfManyEntriesAreStoredAtOnce", false, (*storeTest).faultsOfManyEntriesAreStoredAtOnce},
	{"FaultsAreStoredWithTheirOutcomeOnly", false, (*storeTest).faultsAreStoredWithTheirOutcomeOnly},
	{"FaultsOfDeadEntriesAreTold", false, ofOperations((*storeTest).faultsOfDeadEntriesAreTold)},
	{"ChangeThatDropsAnAttemptKeepsThatItsOutcomeIsUnknown", false, ofOperations((*storeTest).changeThatDropsAnAttemptKeepsThatItsOutcomeIsUnknown)},
	{"PurgeTakesTheFaultsToo", false, ofOperations((*storeTest).purgeTakesTheFaultsToo)},
}

func (t *storeTest) settleFaults(id processlog.ID, to processlog.State, faults *processlog.Faults) processlog.Row {
	t.Helper()
	claimed := t.claim(id, processlog.NewToken(), time.Minute)
	o := outcome(claimed, to)
	o.LastError, o.Faults = "why", faults
	require.True(t, t.settle(processlog.NewToken(), o).Applied)
	return claimed
}

// Failure: F74, F119
func (t *storeTest) faultsOfAnOutcomeComeWithTheNextClaim() {
	id := t.insertOne("faults").ID
	var before processlog.Faults
	for _, faults := range []processlog.Faults{
		{ServerFaults: 1},
		{ServerDowns: processlog.MaxCount},
		{OutcomeUnknown: true},
		{Epoch: 7, Compensating: true, ServerFaults: 3, OutcomeUnknown: true},
	} {
		assert.Equal(t, before, t.settleFaults(id, processlog.Retrying, &faults).Faults)
		assert.Equal(t, faults, t.settleFaults(id, processlog.Retrying, nil).Faults, "an outcome without Faults leaves them")
		before = faults
	}
	other := t.insertOne("faults").ID
	assert.Zero(t, t.settleFaults(other, processlog.Retrying, nil).Faults)
	assert.Zero(t, t.claim(other, token(1), time.Minute).Faults)
}

func (t *storeTest) faultsOfManyEntriesAreStoredAtOnce() {
	const entries = 120
	var ids []processlog.ID
	for range entries {
		ids = append(ids, t.insertOne("faults").ID)
	}
	want := make(map[processlog.ID]processlog.Faults)
	var outcomes []processlog.Outcome
	for i, row := range t.claimAll(token(1), time.Minute, ids...) {
		o := outcome(row, processlog.Retrying)
		if o.LastError = "why"; i%3 > 0 {
			faults := processlog.Faults{Epoch: uint32(i % 2), ServerFaults: i, OutcomeUnknown: i%2 == 0}
			o.Faults, want[row.ID] = &faults, faults
		}
		outcomes = append(outcomes, o)
	}
	for _, answer := range t.settleAll(token(2), outcomes) {
		require.True(t, answer.Applied)
	}
	for _, row := range t.claimAll(token(3), time.Minute, ids...) {
		require.Equal(t, want[row.ID], row.Faults)
	}
}

func (t *storeTest) faultsAreStoredWithTheirOutcomeOnly() {
	id, before := t.insertOne("faults").ID, processlog.Faults{ServerDowns: 1}
	t.settleFaults(id, processlog.Retrying, &before)
	stale := outcome(t.claim(id, token(1), time.Minute), processlog.Retrying)
	stale.Version--
	stale.LastError, stale.Faults = "why", &processlog.Faults{ServerFaults: 9, OutcomeUnknown: true}
	require.False(t, t.settle(token(2), stale).Applied)
	kept := outcome(t.load(id), processlog.Retrying)
	kept.LastError = "why"
	require.True(t, t.settle(token(3), kept).Applied)
	claimed := t.claim(id, token(4), time.Minute)
	assert.Equal(t, before, claimed.Faults)
	o := outcome(claimed, processlog.Retrying)
	o.LastError, o.Faults = "why", &processlog.Faults{ServerFaults: 1}
	for range 2 {
		require.True(t, t.settle(token(5), o).Applied)
	}
	assert.Equal(t, processlog.Faults{ServerFaults: 1}, t.claim(id, token(6), time.Minute).Faults)
}

// Failure: F119
func (t *storeTest) faultsOfDeadEntriesAreTold() {
	unknown, known := t.insertOne("faults").ID, t.insertOne("faults").ID
	faults := processlog.Faults{ServerFaults: 2, OutcomeUnknown: true}
	t.settleFaults(unknown, processlog.Dead, &faults)
	t.settleFaults(known, processlog.Dead, nil)
	found, err := t.ops().FaultsOf(t.ctx, []processlog.ID{unknown, known, processlog.RowID(known.Row() + 100_000)})
	require.NoError(t, err)
	assert.Equal(t, map[processlog.ID]processlog.Faults{unknown: faults}, found)
	rows, err := t.ops().DeadWithoutCase(t.ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	for _, row := range rows {
		assert.Equal(t, found[row.ID], row.Faults)
	}
	none, err := t.ops().FaultsOf(t.ctx, nil)
	require.NoError(t, err)
	assert.Empty(t, none)
}

func (t *storeTest) purgeTakesTheFaultsToo() {
	gone, stays := t.insertOne("faults").ID, t.insertOne("others").ID
	faults := processlog.Faults{OutcomeUnknown: true}
	t.settleFaults(gone, processlog.Dead, &faults)
	t.settleFaults(stays, processlog.Dead, &faults)
	t.waitUntil(func() bool {
		n, err := t.Store.Purge(t.ctx, "faults", processlog.Dead, 0, 10)
		if refused := new(processlog.RefusedError); !errors.As(err, &refused) {
			require.NoError(t, err)
		}
		return n == 1
	}, "the entry is purged")
	found, err := t.ops().FaultsOf(t.ctx, []processlog.ID{gone, stays})
	require.NoError(t, err)
	assert.Equal(t, map[processlog.ID]processlog.Faults{stays: faults}, found)
}

// An attempt that holds the entry may still have its effect.
func (t *storeTest) changeThatDropsAnAttemptKeepsThatItsOutcomeIsUnknown() {
	for _, action := range []processlog.Action{processlog.ActionReschedule, processlog.ActionCancel} {
		waiting, held, failed, done := t.insertOne("order"), t.insertOne("order"), t.insertOne("order"), t.insertOne("order")
		t.settleFaults(failed.ID, processlog.Retrying, &processlog.Faults{ServerFaults: 1})
		t.claimAll(token(1), time.Minute, held.ID, failed.ID, done.ID)
		for _, id := range []processlog.ID{waiting.ID, held.ID, failed.ID} {
			t.change(id, action)
		}
		t.change(done.ID, processlog.ActionComplete)
		faults, err := t.ops().FaultsOf(t.ctx, []processlog.ID{waiting.ID, held.ID, failed.ID, done.ID})
		require.NoError(t, err)
		for id, unknown := range map[processlog.ID]bool{waiting.ID: false, held.ID: true, failed.ID: true, done.ID: false} {
			row := t.load(id)
			assert.Equal(t, unknown, faults[id].In(&row).OutcomeUnknown, "%s", action)
			assert.Equal(t, unknown, row.LastError != "", "a claim reads the Faults of a row with an error only")
		}
		assert.Equal(t, "why", t.load(failed.ID).LastError, "the error of a failed attempt stays")
	}
}
