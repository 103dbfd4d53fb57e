package suite

import (
	"errors"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

var attemptPromises = []storePromise{
	{"FailedAttemptIsReadBackWhole", false, ofOperations((*storeTest).failedAttemptIsReadBackWhole)},
	{"FailedAttemptsOfManyEntriesAreStoredAtOnce", false, ofOperations((*storeTest).failedAttemptsOfManyEntriesAreStoredAtOnce)},
	{"LastFailedAttemptsAreKept", false, ofOperations((*storeTest).lastFailedAttemptsAreKept)},
	{"FailedAttemptIsStoredWithItsOutcomeOnly", false, ofOperations((*storeTest).failedAttemptIsStoredWithItsOutcomeOnly)},
	{"EraseClearsTheErrorsOfAttempts", false, ofOperations((*storeTest).eraseClearsTheErrorsOfAttempts)},
	{"PurgeTakesTheAttemptsToo", false, ofOperations((*storeTest).purgeTakesTheAttemptsToo)},
}

func (t *storeTest) attempts(id processlog.ID) []processlog.FailedAttempt {
	t.Helper()
	found, err := t.ops().AttemptsOf(t.ctx, id)
	require.NoError(t, err)
	return found
}

func failed(row processlog.Row, to processlog.State, why string) processlog.Outcome {
	o := outcome(row, to)
	o.LastError = why
	o.Attempt = &processlog.FailedAttempt{Epoch: row.Epoch, Number: row.Attempt(), Verdict: processlog.AttemptFailed, Instance: "host:1",
		DueAt: row.NextAt, StartedAt: row.NextAt.Add(-row.DueIn), Took: 3 * time.Millisecond, Error: why}
	return o
}

// settleFailed returns the claimed row.
func (t *storeTest) settleFailed(id processlog.ID, to processlog.State, why string) processlog.Row {
	t.Helper()
	claimed := t.claim(id, processlog.NewToken(), time.Minute)
	require.True(t, t.settle(processlog.NewToken(), failed(claimed, to, why)).Applied)
	return claimed
}

func (t *storeTest) failedAttemptIsReadBackWhole() {
	require.NoError(t, t.ops().KeepAttempts(t.ctx))
	id := t.insertOne("attempts").ID
	assert.Empty(t, t.attempts(id))
	claimed := t.claim(id, token(1), time.Minute)
	o := outcome(claimed, processlog.Retrying)
	o.ProcessCount, o.LastError, o.After = 1, "the whole error", time.Hour
	o.Attempt = &processlog.FailedAttempt{Epoch: claimed.Epoch, Number: 7, Compensating: true, Verdict: processlog.AttemptWaits, TimedOut: true, LostLeases: 2,
		Instance: "shop-1:4711 é", DueAt: claimed.NextAt, StartedAt: claimed.NextAt.Add(1500 * time.Millisecond), Took: 2*time.Minute + time.Millisecond,
		Trace: "4bf92f3577b34da6a3ce929d0e0e4736", Error: "scrubbed \u4f59\u989d '\"\\ …"}
	require.True(t, t.settle(token(2), o).Applied)
	want := *o.Attempt
	want.Version, want.NextAt = claimed.Version, t.load(id).NextAt
	assert.Equal(t, []processlog.FailedAttempt{want}, t.attempts(id))
	assert.Equal(t, 1500*time.Millisecond, want.Late())

	long := failed(t.claimDue(id), processlog.Dead, strings.Repeat("é", processlog.MaxText+100))
	require.True(t, t.settle(token(3), long).Applied)
	last := t.attempts(id)[1]
	assert.Equal(t, strings.Repeat("é", processlog.MaxText), last.Error)
	assert.Zero(t, last.NextAt, "a dead entry has no further attempt")
	assert.Empty(t, t.attempts(processlog.RowID(id.Row()+100_000)))
}

func (t *storeTest) claimDue(id processlog.ID) processlog.Row {
	t.Helper()
	_, err := t.Store.Change(t.ctx, nil, false, processlog.Change{Ref: id, Action: processlog.ActionReschedule, Actor: "mei", Reason: "now", Token: processlog.NewToken()})
	require.NoError(t, err)
	return t.claim(id, processlog.NewToken(), time.Minute)
}

func (t *storeTest) failedAttemptsOfManyEntriesAreStoredAtOnce() {
	const entries = 230
	var ids []processlog.ID
	for range entries {
		ids = append(ids, t.insertOne("attempts").ID)
	}
	want := make(map[processlog.ID]string)
	var outcomes []processlog.Outcome
	for i, row := range t.claimAll(token(1), time.Minute, ids...) {
		o := outcome(row, processlog.Succeeded)
		if i%3 > 0 {
			o = failed(row, processlog.Retrying, "why of "+row.ID.String())
			want[row.ID] = "scrubbed"
			if o.Attempt.Number = i; i%3 == 1 {
				o.Attempt.Error, want[row.ID] = "scrubbed", "scrubbed"
			} else {
				want[row.ID] = o.LastError
			}
		}
		if i%5 == 0 {
			o.Attempt = nil
			delete(want, row.ID)
		}
		outcomes = append(outcomes, o)
	}
	for _, answer := range t.settleAll(token(2), outcomes) {
		require.True(t, answer.Applied)
	}
	for _, o := range outcomes {
		found := t.attempts(o.ID)
		if o.Attempt == nil {
			require.Empty(t, found)
			continue
		}
		require.Len(t, found, 1)
		require.Equal(t, want[o.ID], found[0].Error)
		require.Equal(t, o.Attempt.Number, found[0].Number)
		require.Equal(t, o.Version, found[0].Version)
	}
}

func (t *storeTest) lastFailedAttemptsAreKept() {
	id, other := t.insertOne("attempts").ID, t.insertOne("attempts").ID
	t.settleFailed(other, processlog.Retrying, "of another entry")
	var versions []uint64
	for range processlog.MaxAttemptsKept + 7 {
		versions = append(versions, t.settleFailed(id, processlog.Retrying, "why").Version)
	}
	var kept []uint64
	for _, a := range t.attempts(id) {
		kept = append(kept, a.Version)
	}
	assert.Equal(t, versions[7:], kept)
	assert.Len(t, t.attempts(other), 1)
}

func (t *storeTest) failedAttemptIsStoredWithItsOutcomeOnly() {
	id := t.insertOne("attempts").ID
	claimed := t.claim(id, token(1), time.Minute)
	stale := failed(claimed, processlog.Retrying, "stale")
	stale.Version--
	require.False(t, t.settle(token(2), stale).Applied)
	assert.Empty(t, t.attempts(id))
	for range 2 {
		require.True(t, t.settle(token(3), failed(claimed, processlog.Retrying, "why")).Applied)
	}
	require.Len(t, t.attempts(id), 1)
	assert.Equal(t, "why", t.attempts(id)[0].Error)

	late := failed(claimed, processlog.Retrying, "late")
	require.False(t, t.settle(token(4), late).Applied)
	success := failed(t.claim(id, token(5), time.Minute), processlog.Succeeded, "")
	require.True(t, t.settle(token(6), success).Applied)
	assert.Len(t, t.attempts(id), 1, "a success stores no attempt")
}

func (t *storeTest) eraseClearsTheErrorsOfAttempts() {
	require.NoError(t, t.ops().KeepAttempts(t.ctx))
	id, stays := t.insertOne("attempts").ID, t.insertOne("attempts").ID
	for _, id := range []processlog.ID{id, stays} {
		t.settleFailed(id, processlog.Retrying, "personal")
		t.settleFailed(id, processlog.Dead, "personal, too")
	}
	_, err := t.Store.Change(t.ctx, nil, false, processlog.Change{Ref: id, Action: processlog.ActionErase, Actor: "mei", Reason: "asked", Token: token(9)})
	require.NoError(t, err)
	require.Len(t, t.attempts(id), 2)
	for _, a := range t.attempts(id) {
		assert.Empty(t, a.Error)
		assert.Equal(t, processlog.AttemptFailed, a.Verdict)
	}
	assert.Equal(t, "personal", t.attempts(stays)[0].Error)
}

func (t *storeTest) purgeTakesTheAttemptsToo() {
	require.NoError(t, t.ops().KeepAttempts(t.ctx))
	gone, stays := t.insertOne("attempts").ID, t.insertOne("others").ID
	t.settleFailed(gone, processlog.Dead, "why")
	t.settleFailed(stays, processlog.Dead, "why")
	t.waitUntil(func() bool {
		n, err := t.Store.Purge(t.ctx, "attempts", processlog.Dead, 0, 10)
		if refused := new(processlog.RefusedError); !errors.As(err, &refused) {
			require.NoError(t, err)
		}
		return n == 1
	}, "the entry is purged")
	assert.Empty(t, t.attempts(gone))
	assert.Len(t, t.attempts(stays), 1)
}
