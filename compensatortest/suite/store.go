package suite

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// Harness is a store under test, and what a caller of the library can do with the store's database.
type Harness struct {
	Store processlog.Store // store under test

	// Begin starts a transaction as a caller of the library does, without the Store. At least three transactions may be
	// open at once, unless SingleWriter is set.
	Begin func(ctx context.Context) (processlog.Transaction, error)

	// If SingleWriter is set, an open transaction that has written blocks every other writer, as in SQLite. The suite
	// then skips the promises about several writers at once.
	SingleWriter bool

	// Autocommit is a caller's handle without an open transaction, for example a *sql.DB. If Autocommit is nil, the
	// suite skips the promises about such a handle.
	Autocommit processlog.Tx

	// Crash ends every open transaction as a server crash does. It returns when the store is usable again. If Crash is
	// nil, the suite skips the promises about a crash.
	Crash func(t *testing.T)

	// Refuse makes the database refuse every change of the entries' rows, as a trigger does. allow ends the refusal. If
	// Refuse is nil, the suite skips the promises about refused rows.
	Refuse func(t *testing.T, ids []processlog.ID) (allow func())
}

// TestStore is the conformance suite of processlog.Store. open returns a new, empty store that shares nothing with
// other stores. If the store implements processlog.Operations, TestStore tests this contract too.
//
// If the harness lacks a field, the suite skips the promises that need it, and gives the reason. The suite uses the
// real clock.
// Failure: F27
func TestStore(t *testing.T, open func(t *testing.T) Harness) {
	for _, promise := range everyStorePromise() {
		t.Run(promise.name, func(t *testing.T) {
			h := open(t)
			if promise.writers && h.SingleWriter {
				t.Skip("the store allows one writer at a time")
			}
			promise.test(&storeTest{T: t, Harness: h, ctx: t.Context()})
		})
	}
}

func everyStorePromise() []storePromise {
	return slices.Concat(storePromises, transactionPromises, lockPromises, fencePromises, orderPromises, slotPromises, orderingPromises, operationPromises, casePromises, faultPromises, attemptPromises, statisticPromises, backlogPromises, instancePromises, resultPromises, refusalPromises, limitPromises)
}

type storePromise struct {
	name    string
	writers bool // whether the test needs several transactions that write at the same time
	test    func(*storeTest)
}

var storePromises = []storePromise{
	{"CommittedDraftIsReadBackWhole", false, (*storeTest).committedDraftIsReadBackWhole},
	{"UncommittedEntryIsInvisible", false, (*storeTest).uncommittedEntryIsInvisible},
	{"RolledBackEntryNeverWas", false, (*storeTest).rolledBackEntryNeverWas},
	{"InsertRefusesAFinishedTransaction", false, (*storeTest).insertRefusesAFinishedTransaction},
	{"ManyDraftsKeepTheirOrder", false, (*storeTest).manyDraftsKeepTheirOrder},
	{"DuplicateChangesNothingAndIsTold", false, (*storeTest).duplicateChangesNothingAndIsTold},
	{"EqualKeysAreEqualByteByByte", false, (*storeTest).equalKeysAreEqualByteByByte},
	{"EntryInsertedWithALeaseHasItsToken", false, (*storeTest).entryInsertedWithALeaseHasItsToken},
	{"EntryInsertedAsDoneHasSucceededAndNeverRuns", false, (*storeTest).entryInsertedAsDoneHasSucceededAndNeverRuns},
	{"DeliveryOfTheCallersOwnIsCountedOnce", false, (*storeTest).deliveryOfTheCallersOwnIsCountedOnce},
	{"ConcurrentInsertsOfOneKeyMakeOneRow", true, (*storeTest).concurrentInsertsOfOneKeyMakeOneRow},
	{"ClaimLeasesFencesAndCounts", false, (*storeTest).claimLeasesFencesAndCounts},
	{"ClaimSortsWhatItCannotHave", false, (*storeTest).claimSortsWhatItCannotHave},
	{"DelayedEntryIsNotClaimedEarly", false, (*storeTest).delayedEntryIsNotClaimedEarly},
	{"EndedLeaseMayBeClaimed", false, (*storeTest).endedLeaseMayBeClaimed},
	{"ConcurrentClaimsGetEachEntryOnce", false, (*storeTest).concurrentClaimsGetEachEntryOnce},
	{"ClaimNeverWaitsForALockedRow", true, (*storeTest).claimNeverWaitsForALockedRow},
	{"ReleaseUndoesOnlyItsOwnClaim", false, (*storeTest).releaseUndoesOnlyItsOwnClaim},
	{"ReleaseFreesTheOthersWhereOneIsLocked", true, (*storeTest).releaseFreesTheOthersWhereOneIsLocked},
	{"RenewKeepsTheVersionAndTellsWhatIsLost", false, (*storeTest).renewKeepsTheVersionAndTellsWhatIsLost},
	{"OutcomesGoWhereTheContractSays", false, (*storeTest).outcomesGoWhereTheContractSays},
	{"OutcomeOfTheLongestWaitIsStoredAsGiven", false, (*storeTest).outcomeOfTheLongestWaitIsStoredAsGiven},
	{"FencedOutcomeOfAStaleClaimIsDropped", false, (*storeTest).fencedOutcomeOfAStaleClaimIsDropped},
	{"SuccessIsAbsorbedWithinItsEpochOnly", false, (*storeTest).successIsAbsorbedWithinItsEpochOnly},
	{"OutcomeNeverEndsAnEntryThatGotItsId", false, (*storeTest).outcomeNeverEndsAnEntryThatGotItsID},
	{"SettlingTwiceUnderOneTokenAppliesOnce", false, (*storeTest).settlingTwiceUnderOneTokenAppliesOnce},
	{"AnyErrorTextIsStored", false, (*storeTest).anyErrorTextIsStored},
	{"SettleTxCommitsWithItsTransaction", false, (*storeTest).settleTxCommitsWithItsTransaction},
	{"SettleTxIsFenced", false, (*storeTest).settleTxIsFenced},
	{"EveryActionIsAllowedAsTheContractSays", false, (*storeTest).everyActionIsAllowedAsTheContractSays},
	{"DeadEntryIsEndedByAServiceUnlessItsCompensationHasBegun", false, (*storeTest).deadEntryIsEndedByAServiceUnlessItsCompensationHasBegun},
	{"DeadEntryThatAServiceEndedTakesNoLateOutcome", false, (*storeTest).deadEntryThatAServiceEndedTakesNoLateOutcome},
	{"WhatIsCancelledCanBeCancelledAgain", false, (*storeTest).whatIsCancelledCanBeCancelledAgain},
	{"WhatHasSucceededIsNotCompletedAgain", false, (*storeTest).whatHasSucceededIsNotCompletedAgain},
	{"ChangeForAnotherTypeIsRefused", false, (*storeTest).changeForAnotherTypeIsRefused},
	{"VersionsAreThoseOfTheRows", false, (*storeTest).versionsAreThoseOfTheRows},
	{"NotesAreTheLogsOwn", false, (*storeTest).notesAreTheLogsOwn},
	{"ActionsOfPeopleAreKept", false, (*storeTest).actionsOfPeopleAreKept},
	{"ChangeInATransactionEndsWithIt", false, (*storeTest).changeInATransactionEndsWithIt},
	{"ChangeOfALockedRowIsBusy", true, (*storeTest).changeOfALockedRowIsBusy},
	{"RequeueAllTakesWhatStandsAsItWasSeen", false, (*storeTest).requeueAllTakesWhatStandsAsItWasSeen},
	{"RequeueAllWaitsForNobody", true, (*storeTest).requeueAllWaitsForNobody},
	{"ErasedEntryKeepsTheFactAlone", false, (*storeTest).erasedEntryKeepsTheFactAlone},
	{"ErasedDeadEntryCanStillBeEnded", false, (*storeTest).erasedDeadEntryCanStillBeEnded},
	{"ResolveWaitsForAnInsertInFlight", true, (*storeTest).resolveWaitsForAnInsertInFlight},
	{"ResolveOfNothingIsNotFound", false, (*storeTest).resolveOfNothingIsNotFound},
	{"ReferenceThatOnlyLooksAlikeIsNotFound", false, (*storeTest).referenceThatOnlyLooksAlikeIsNotFound},
	{"DueListsWhatCouldBeClaimed", false, (*storeTest).dueListsWhatCouldBeClaimed},
	{"HeadsTellTheEarliestOfEachStateAndType", false, (*storeTest).headsTellTheEarliestOfEachStateAndType},
	{"ScanPagesThroughAWindow", false, (*storeTest).scanPagesThroughAWindow},
	{"LeasedEntriesAreListedByTheirProcess", false, (*storeTest).leasedEntriesAreListedByTheirProcess},
	{"LeasedEntriesOfAllTypesAreOnOnePage", false, (*storeTest).leasedEntriesOfAllTypesAreOnOnePage},
	{"ListPagesAreCompleteAndWithoutRepeats", false, (*storeTest).listPagesAreCompleteAndWithoutRepeats},
	{"NarrowedPagesGoOnWhereReadingStopped", false, (*storeTest).narrowedPagesGoOnWhereReadingStopped},
	{"PagesOfSomeTypesAreFullOfThemAlone", false, (*storeTest).pagesOfSomeTypesAreFullOfThemAlone},
	{"CountsAreRightUpToTheirBound", false, (*storeTest).countsAreRightUpToTheirBound},
	{"PurgeTakesOnlyOldTerminalEntries", false, (*storeTest).purgeTakesOnlyOldTerminalEntries},
}

type storeTest struct {
	*testing.T
	Harness
	ctx  context.Context
	keys int
}

const eventually = 30 * time.Second

// waitUntil calls check in the test's own goroutine, so check may end the test.
func (t *storeTest) waitUntil(check func() bool, what string) {
	t.Helper()
	for end := time.Now().Add(eventually); !check(); {
		require.True(t, time.Now().Before(end), "waited for too long until this holds: %s", what)
		<-time.After(2 * time.Millisecond)
	}
}

func (t *storeTest) assertLease(total, left time.Duration) {
	t.Helper()
	assert.InDelta(t, total, left, float64(time.Minute), "a lease of %s has %s left", total, left)
}

func (t *storeTest) begin() processlog.Transaction {
	t.Helper()
	tx, err := t.Begin(t.ctx)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (t *storeTest) draft(businessType string) processlog.Draft {
	t.keys++
	return processlog.Draft{BusinessType: businessType, Content: []byte(`{"n":1}`), IdempotencyKey: processlog.IdempotencyKey(fmt.Sprintf("key-%04d", t.keys))}
}

func (t *storeTest) insert(drafts ...processlog.Draft) []processlog.Row {
	t.Helper()
	tx := t.begin()
	_, err := t.Store.Insert(t.ctx, tx, drafts, false)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	keys := make([]processlog.IdempotencyKey, len(drafts))
	for i, d := range drafts {
		keys[i] = d.IdempotencyKey
	}
	ids, err := t.Store.IDs(t.ctx, nil, keys)
	require.NoError(t, err)
	loaded, err := t.Store.Load(t.ctx, slices.Collect(maps.Values(ids)))
	require.NoError(t, err)
	byKey := make(map[processlog.IdempotencyKey]processlog.Row, len(loaded))
	for _, row := range loaded {
		byKey[row.IdempotencyKey] = row
	}
	rows := make([]processlog.Row, len(drafts))
	for i, key := range keys {
		row, exists := byKey[key]
		require.True(t, exists, "entry %q", key)
		rows[i] = row
	}
	return rows
}

func (t *storeTest) insertOne(businessType string) processlog.Row {
	t.Helper()
	return t.insert(t.draft(businessType))[0]
}

func (t *storeTest) load(id processlog.ID) processlog.Row {
	t.Helper()
	rows, err := t.Store.Load(t.ctx, []processlog.ID{id})
	require.NoError(t, err)
	require.Len(t, rows, 1, "entry %s exists", id)
	return rows[0]
}

func idsOf(rows []processlog.Row) []processlog.ID {
	ids := make([]processlog.ID, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	return ids
}

func (t *storeTest) statesOf(ids []processlog.ID) map[processlog.ID]processlog.State {
	t.Helper()
	rows, err := t.Store.Load(t.ctx, ids)
	require.NoError(t, err)
	states := make(map[processlog.ID]processlog.State)
	for _, row := range rows {
		states[row.ID] = row.State
	}
	return states
}

func all(*processlog.Row) bool { return true }

func token(b byte) (token processlog.Token) {
	for i := range token {
		token[i] = b
	}
	return token
}

// claim needs a free entry: due and without a valid lease.
func (t *storeTest) claim(id processlog.ID, by processlog.Token, lease time.Duration) processlog.Row {
	t.Helper()
	return t.claimAll(by, lease, id)[0]
}

// claimAll needs free entries, and returns them in any order.
func (t *storeTest) claimAll(by processlog.Token, lease time.Duration, ids ...processlog.ID) []processlog.Row {
	t.Helper()
	wanted := make([]processlog.Wanted, len(ids))
	for i, id := range ids {
		wanted[i].ID = id
	}
	found, err := t.Store.Claim(t.ctx, wanted, by, lease, all)
	require.NoError(t, err)
	require.Len(t, found.Mine, len(ids), "all are claimed: %+v", found)
	return found.Mine
}

func outcome(row processlog.Row, to processlog.State) processlog.Outcome {
	o := processlog.Outcome{ID: row.ID, IdempotencyKey: row.IdempotencyKey, Epoch: row.Epoch, Version: row.Version, To: to, ProcessCount: row.ProcessCount, CompensateCount: row.CompensateCount}
	if to.Terminal() {
		o.EndedBy = processlog.EndedByHandler
	}
	return o
}

func (t *storeTest) settle(by processlog.Token, o processlog.Outcome) processlog.Settled {
	t.Helper()
	answers, err := t.Store.Settle(t.ctx, by, []processlog.Outcome{o})
	require.NoError(t, err)
	require.Len(t, answers, 1)
	return answers[0]
}

func (t *storeTest) inState(state processlog.State) processlog.Row {
	t.Helper()
	row := t.insertOne("states")
	switch state {
	case processlog.Pending:
		return row
	case processlog.Cancelled:
		t.change(row.ID, processlog.ActionCancel)
	case processlog.SettledManually:
		t.settleTo(row, processlog.Dead)
		t.change(row.ID, processlog.ActionSettleManually)
	case processlog.Compensated:
		t.settleTo(row, processlog.Compensating)
		t.settleTo(t.load(row.ID), state)
	default:
		t.settleTo(row, state)
	}
	return t.load(row.ID)
}

func (t *storeTest) settleTo(row processlog.Row, state processlog.State) {
	t.Helper()
	claimed := t.claim(row.ID, token(9), time.Minute)
	o := outcome(claimed, state)
	if state != processlog.Succeeded && state != processlog.Compensated {
		o.ProcessCount, o.LastError = claimed.ProcessCount+1, "failed"
	}
	require.True(t, t.settle(token(10), o).Applied, "to %s", state)
}

func (t *storeTest) change(ref processlog.Ref, action processlog.Action) {
	t.Helper()
	_, err := t.Store.Change(t.ctx, nil, false, newChange(ref, action))
	require.NoError(t, err)
}

var changeTokens atomic.Uint32

func newChange(ref processlog.Ref, action processlog.Action) processlog.Change {
	change := processlog.Change{Ref: ref, Action: action, Token: token(byte(100 + changeTokens.Add(1)%100))}
	if change.Audited() {
		change.Actor, change.Reason = "ann", "because"
	}
	return change
}

// assertFollows asserts that exactly one write has changed a row. The parameters are the row before the write and the
// row after the write.
func (t *storeTest) assertFollows(before, after processlog.Row) {
	t.Helper()
	assert.Equal(t, before.Version+1, after.Version, "version")
	assert.NotEqual(t, before.Token, after.Token, "token")
}
