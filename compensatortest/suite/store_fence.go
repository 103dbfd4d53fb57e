package suite

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

var fencePromises = []storePromise{
	{"SettleNeverMovesATerminalEntry", false, (*storeTest).settleNeverMovesATerminalEntry},
	{"AbsorbedSuccessKeepsTheCounts", false, (*storeTest).absorbedSuccessKeepsTheCounts},
	{"SuccessIsNotAbsorbedWhileCompensating", false, (*storeTest).successIsNotAbsorbedWhileCompensating},
	{"SuccessOfACompensationIsAbsorbedWhileCompensating", false, (*storeTest).successOfACompensationIsAbsorbedWhileCompensating},
	{"SuccessOfACompensationIsAbsorbedWithinItsEpochOnly", false, (*storeTest).successOfACompensationIsAbsorbedWithinItsEpochOnly},
	{"SuccessOfACompensationInATransactionIsFenced", false, (*storeTest).successOfACompensationInATransactionIsFenced},
	{"AbsorbedSuccessesOfBothKindsKeepApart", false, (*storeTest).absorbedSuccessesOfBothKindsKeepApart},
	{"LeaseYieldsOnlyToItsOwnToken", false, (*storeTest).leaseYieldsOnlyToItsOwnToken},
	{"ReleaseLeavesASettledEntryAlone", false, (*storeTest).releaseLeavesASettledEntryAlone},
	{"ReleaseOfAnEntryInsertedWithALeaseCountsNothing", false, (*storeTest).releaseOfAnEntryInsertedWithALeaseCountsNothing},
	{"EveryActionButRescheduleEndsTheLease", false, (*storeTest).everyActionButRescheduleEndsTheLease},
	{"NothingPutOffIsClaimedEarly", false, (*storeTest).nothingPutOffIsClaimedEarly},
	{"OneOfManySettlesOfAClaimIsApplied", false, (*storeTest).oneOfManySettlesOfAClaimIsApplied},
	{"SettlesInCrossingOrderDoNotHarmEachOther", false, (*storeTest).settlesInCrossingOrderDoNotHarmEachOther},
	{"OneOfManyCancelsIsMade", false, (*storeTest).oneOfManyCancelsIsMade},
}

func (t *storeTest) settleNeverMovesATerminalEntry() {
	for _, state := range processlog.States {
		if !state.Terminal() {
			continue
		}
		row := t.inState(state)
		for _, to := range []processlog.State{processlog.Retrying, processlog.Compensating, processlog.Dead, processlog.Succeeded, processlog.Pending} {
			got := t.settle(token(3), outcome(row, to))
			assert.Equal(t, processlog.Settled{State: state, EndedBy: t.load(row.ID).EndedBy}, got, "%s to %s", state, to)
		}
		assert.Equal(t, row.Version, t.load(row.ID).Version, "%s", state)
	}
}

func (t *storeTest) absorbedSuccessKeepsTheCounts() {
	row := t.insertOne("absorb")
	first := t.claim(row.ID, token(1), time.Minute)
	failed := outcome(first, processlog.Retrying)
	failed.ProcessCount, failed.LastError = 1, "another attempt failed"
	require.True(t, t.settle(token(2), failed).Applied)
	late := outcome(first, processlog.Succeeded)
	require.True(t, t.settle(token(3), late).Applied)
	after := t.load(row.ID)
	assert.Equal(t, processlog.Succeeded, after.State)
	assert.Equal(t, 1, after.ProcessCount, "the recorded failures stay recorded")
	assert.Equal(t, processlog.EndedByHandler, after.EndedBy)
}

func (t *storeTest) successIsNotAbsorbedWhileCompensating() {
	row := t.claim(t.inState(processlog.Compensating).ID, token(1), time.Minute)
	late := outcome(row, processlog.Succeeded)
	assert.Equal(t, processlog.Settled{State: processlog.Compensating}, t.settle(token(2), late))
	assert.Equal(t, row.Version, t.load(row.ID).Version)
}

func undone(row processlog.Row) processlog.Outcome {
	o := outcome(row, processlog.Compensated)
	return o
}

func (t *storeTest) successOfACompensationIsAbsorbedWhileCompensating() {
	first := t.claim(t.inState(processlog.Compensating).ID, token(1), time.Minute)
	failed := outcome(first, processlog.Compensating)
	failed.CompensateCount, failed.LastError = 1, "another attempt failed"
	require.True(t, t.settle(token(2), failed).Applied)
	require.True(t, t.settle(token(3), undone(first)).Applied, "the compensation is stored, although another process holds the entry")
	after := t.load(first.ID)
	assert.Equal(t, []any{processlog.Compensated, processlog.EndedByHandler, first.Version + 2}, []any{after.State, after.EndedBy, after.Version})
	assert.Equal(t, 1, after.CompensateCount, "the recorded failures stay recorded")
	assert.True(t, t.settle(token(3), undone(first)).Applied, "the same outcome again, as after a lost answer")

	for _, state := range processlog.States {
		if state == processlog.Compensating {
			continue
		}
		row := t.inState(state)
		assert.Equal(t, processlog.Settled{State: state, EndedBy: t.load(row.ID).EndedBy}, t.settle(token(4), undone(row)), "%s", state)
		assert.Equal(t, row.Version, t.load(row.ID).Version, "%s", state)
	}
}

func (t *storeTest) successOfACompensationIsAbsorbedWithinItsEpochOnly() {
	begunBefore := t.claim(t.inState(processlog.Compensating).ID, token(1), time.Minute)
	require.True(t, t.settle(token(4), outcome(begunBefore, processlog.Dead)).Applied)
	again := newChange(begunBefore.ID, processlog.ActionRequeue)
	again.Compensate = true
	_, err := t.Store.Change(t.ctx, nil, false, again)
	require.NoError(t, err)
	assert.Equal(t, processlog.Settled{State: processlog.Compensating}, t.settle(token(5), undone(begunBefore)), "the outcome belongs to the epoch before")
}

func (t *storeTest) successOfACompensationInATransactionIsFenced() {
	overtaken := t.claim(t.inState(processlog.Compensating).ID, token(1), time.Minute)
	require.True(t, t.settle(token(6), outcome(overtaken, processlog.Compensating)).Applied)
	tx := t.begin()
	assert.ErrorIs(t, t.Store.SettleTx(t.ctx, tx, token(7), undone(overtaken)), processlog.ErrLeaseLost, "the effect of a transactional compensation is in its own transaction")
	require.NoError(t, tx.Rollback())
}

func (t *storeTest) absorbedSuccessesOfBothKindsKeepApart() {
	pending, compensating := t.inState(processlog.Pending), t.inState(processlog.Compensating)
	done := outcome(compensating, processlog.Succeeded)
	answers, err := t.Store.Settle(t.ctx, token(2), []processlog.Outcome{undone(pending), done})
	require.NoError(t, err)
	assert.Equal(t, []processlog.Settled{{State: processlog.Pending}, {State: processlog.Compensating}}, answers)

	done = outcome(pending, processlog.Succeeded)
	answers, err = t.Store.Settle(t.ctx, token(3), []processlog.Outcome{done, undone(compensating)})
	require.NoError(t, err)
	assert.True(t, answers[0].Applied && answers[1].Applied, "%+v", answers)
	assert.Equal(t, processlog.Succeeded, t.load(pending.ID).State)
	assert.Equal(t, processlog.Compensated, t.load(compensating.ID).State)
}

func (t *storeTest) leaseYieldsOnlyToItsOwnToken() {
	row := t.insertOne("token")
	want := []processlog.Wanted{{ID: row.ID}}
	// This lease has the zero token. In Wanted, a zero token means that the caller has no lease. So a Wanted with the
	// zero token must not match this lease.
	t.claim(row.ID, processlog.Token{}, time.Hour)
	for _, other := range []processlog.Token{{}, token(2)} {
		want[0].Token = other
		found, err := t.Store.Claim(t.ctx, want, token(3), time.Hour, all)
		require.NoError(t, err)
		assert.Empty(t, found.Mine)
		assert.Len(t, found.Waiting, 1)
	}
	assert.EqualValues(t, 1, t.load(row.ID).Version)
}

func (t *storeTest) releaseLeavesASettledEntryAlone() {
	row := t.claim(t.insertOne("release").ID, token(1), time.Minute)
	require.True(t, t.settle(token(2), outcome(row, processlog.Retrying)).Applied)
	for _, by := range []processlog.Token{token(1), token(2)} {
		t.release(by, row.ID)
	}
	after := t.load(row.ID)
	assert.Equal(t, row.Version+1, after.Version)
	assert.Zero(t, after.DeliveryCount)
}

func (t *storeTest) releaseOfAnEntryInsertedWithALeaseCountsNothing() {
	d := t.draft("inserted")
	d.Lease, d.Token = time.Hour, token(1)
	row := t.insert(d)[0]
	t.release(token(1), row.ID)
	after := t.load(row.ID)
	assert.EqualValues(t, 1, after.Version)
	assert.Zero(t, after.DeliveryCount)
	due, err := t.Store.Due(t.ctx, "inserted", 1)
	require.NoError(t, err)
	assert.Equal(t, []processlog.ID{row.ID}, due)
}

func (t *storeTest) everyActionButRescheduleEndsTheLease() {
	for action, line := range contract {
		for _, state := range line.from {
			if state.Terminal() {
				continue
			}
			running := t.claim(t.inState(state).ID, token(1), time.Hour)
			before, err := t.Store.Change(t.ctx, nil, false, newChange(running.ID, action))
			require.NoError(t, err, "%s a %s entry", action, state)
			t.assertLease(time.Hour, before.LeaseLeft)
			after := t.load(running.ID)
			if action == processlog.ActionReschedule {
				t.assertLease(time.Hour, after.LeaseLeft)
				assert.Equal(t, running.DeliveryCount-1, after.DeliveryCount, "the attempt's outcome may be dropped, so its delivery must not count as a crash")
			} else {
				assert.LessOrEqual(t, after.LeaseLeft, time.Duration(0), "%s a %s entry", action, state)
				assert.Zero(t, after.DeliveryCount, "%s a %s entry", action, state)
			}
			assert.False(t, t.settle(token(2), outcome(running, processlog.Retrying)).Applied, "the attempt lost its fence")
		}
	}
}

func (t *storeTest) nothingPutOffIsClaimedEarly() {
	const delay = 200 * time.Millisecond
	for name, putOff := range map[string]func(row processlog.Row){
		"retry": func(row processlog.Row) {
			o := outcome(t.claim(row.ID, token(1), time.Minute), processlog.Retrying)
			o.After = delay
			require.True(t, t.settle(token(2), o).Applied)
		},
		"retry in a transaction": func(row processlog.Row) {
			o := outcome(t.claim(row.ID, token(1), time.Minute), processlog.Retrying)
			o.After = delay
			tx := t.begin()
			require.NoError(t, t.Store.SettleTx(t.ctx, tx, token(2), o))
			require.NoError(t, tx.Commit())
		},
		"reschedule": func(row processlog.Row) {
			change := newChange(row.ID, processlog.ActionReschedule)
			change.Delay = delay
			_, err := t.Store.Change(t.ctx, nil, false, change)
			require.NoError(t, err)
		},
		"requeue": func(row processlog.Row) {
			t.settleTo(row, processlog.Dead)
			change := newChange(row.ID, processlog.ActionRequeue)
			change.Delay = delay
			_, err := t.Store.Change(t.ctx, nil, false, change)
			require.NoError(t, err)
		},
	} {
		row := t.insertOne("put off")
		began := time.Now()
		putOff(row)
		// Claim every 300 µs. So if the store makes the entry due only one millisecond too early, a claim still
		// succeeds before the delay is over, and the last assertion fails.
		require.Eventually(t, func() bool {
			found, err := t.Store.Claim(t.ctx, []processlog.Wanted{{ID: row.ID}}, token(3), time.Minute, all)
			return err == nil && len(found.Mine) == 1
		}, eventually, 300*time.Microsecond, "%s: the entry comes due", name)
		assert.GreaterOrEqual(t, time.Since(began), delay, name)
	}
}

const writers = 8

func inParallel(run func(writer int)) {
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() { run(i) })
	}
	wg.Wait()
}

func (t *storeTest) settleAll(by processlog.Token, outcomes []processlog.Outcome) (answers []processlog.Settled) {
	busy := func(s processlog.Settled) bool { return s.Busy }
	for deadline := time.Now().Add(eventually); time.Now().Before(deadline); {
		var err error
		answers, err = t.Store.Settle(t.ctx, by, outcomes)
		if !assert.NoError(t, err) || !slices.ContainsFunc(answers, busy) {
			return answers
		}
	}
	assert.Fail(t, "rows are still busy")
	return nil
}

func (t *storeTest) oneOfManySettlesOfAClaimIsApplied() {
	row := t.claim(t.insertOne("rivals").ID, token(1), time.Hour)
	var applied atomic.Int32
	inParallel(func(i int) {
		o := outcome(row, processlog.Retrying)
		o.ProcessCount = 1
		for _, answer := range t.settleAll(token(byte(20+i)), []processlog.Outcome{o}) {
			if answer.Applied {
				applied.Add(1)
			}
		}
	})
	assert.EqualValues(t, 1, applied.Load())
	after := t.load(row.ID)
	assert.Equal(t, []any{row.Version + 1, 1}, []any{after.Version, after.ProcessCount})
}

func (t *storeTest) settlesInCrossingOrderDoNotHarmEachOther() {
	var drafts []processlog.Draft
	for range 50 {
		drafts = append(drafts, t.draft("crossing"))
	}
	var outcomes []processlog.Outcome
	for _, row := range t.insert(drafts...) {
		outcomes = append(outcomes, outcome(t.claim(row.ID, token(1), time.Hour), processlog.Succeeded))
	}
	var applied atomic.Int32
	inParallel(func(i int) {
		mine := slices.Clone(outcomes)
		if i%2 == 1 {
			slices.Reverse(mine)
		}
		for _, answer := range t.settleAll(token(byte(20+i)), mine) {
			if answer.Applied {
				applied.Add(1)
			}
		}
	})
	assert.EqualValues(t, len(outcomes), applied.Load())
	for _, o := range outcomes {
		require.Equal(t, o.Version+1, t.load(o.ID).Version)
	}
}

func (t *storeTest) oneOfManyCancelsIsMade() {
	row := t.insertOne("rivals")
	var made atomic.Int32
	inParallel(func(int) {
		was, err := processlog.Row{}, processlog.ErrBusy
		for deadline := time.Now().Add(eventually); errors.Is(err, processlog.ErrBusy) && time.Now().Before(deadline); {
			was, err = t.Store.Change(t.ctx, nil, false, newChange(row.ID, processlog.ActionCancel))
		}
		if assert.NoError(t, err) && was.State != processlog.Cancelled {
			made.Add(1)
		}
	})
	assert.EqualValues(t, 1, made.Load())
	assert.Equal(t, row.Version+1, t.load(row.ID).Version)
}
