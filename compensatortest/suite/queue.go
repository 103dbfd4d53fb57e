package suite

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// QueueHarness is a queue under test. Its functions do to the queue what other processes and servers do.
type QueueHarness struct {
	Queue processlog.Queue // queue as one process sees it, closed by the suite

	// Another opens the queue a second time, as another process would. The suite closes what Another returns. If
	// Another is nil, the suite skips the promises about several processes. Leave it nil only if no other process can
	// use the queue.
	Another func(t *testing.T) processlog.Queue

	// Lose makes the queue forget everything, as a restart without persistence does. If Lose is nil, the suite skips the
	// promises about such a loss.
	Lose func(t *testing.T)
}

// TestQueue is the conformance suite of processlog.Queue. open returns a new, empty queue that shares nothing with
// other queues.
//
// If the harness lacks a function, the suite skips the promises that need it, and gives the reason. A queue that
// processes share, or that can lose its content, passes only if nothing is skipped.
//
// The suite uses the real clock.
// Failure: F42, F50
func TestQueue(t *testing.T, open func(t *testing.T) QueueHarness) {
	for _, promise := range queuePromises {
		t.Run(promise.name, func(t *testing.T) { promise.test(newQueueTest(t, open(t))) })
	}
}

type queuePromise struct {
	name string
	test func(*queueTest)
}

var queuePromises = []queuePromise{
	{"NoEntryComesDueEarly", (*queueTest).noEntryComesDueEarly},
	{"EntriesAreClaimedEarliestFirst", (*queueTest).entriesAreClaimedEarliestFirst},
	{"ClaimTakesNoMoreThanItsLimit", (*queueTest).claimTakesNoMoreThanItsLimit},
	{"LeasedEntryIsGivenToNobodyElse", (*queueTest).leasedEntryIsGivenToNobodyElse},
	{"EntryIsGivenAgainOnceItsLeaseEnds", (*queueTest).entryIsGivenAgainOnceItsLeaseEnds},
	{"ConcurrentClaimersGetEachEntryOnce", (*queueTest).concurrentClaimersGetEachEntryOnce},
	{"ClaimTellsWhenTheNextEntryIsDue", (*queueTest).claimTellsWhenTheNextEntryIsDue},
	{"SettleRemovesOnlyUnderItsOwnToken", (*queueTest).settleRemovesOnlyUnderItsOwnToken},
	{"SettlePutsOffOnlyUnderItsOwnToken", (*queueTest).settlePutsOffOnlyUnderItsOwnToken},
	{"SettlePullsInUnderAnyToken", (*queueTest).settlePullsInUnderAnyToken},
	{"SettleBringsBackWhatIsLost", (*queueTest).settleBringsBackWhatIsLost},
	{"SettledEntryComesDueAgainNotEarly", (*queueTest).settledEntryComesDueAgainNotEarly},
	{"SettledEntryMayWaitForTheLongestTime", (*queueTest).settledEntryMayWaitForTheLongestTime},
	{"SettledEntryMayBeDueAgainAtOnce", (*queueTest).settledEntryMayBeDueAgainAtOnce},
	{"KnownEntryKeepsItsPlace", (*queueTest).knownEntryKeepsItsPlace},
	{"LeasedEntryKeepsItsLeaseWhenEnqueued", (*queueTest).leasedEntryKeepsItsLeaseWhenEnqueued},
	{"EntryTooFarInTheFutureIsPulledIn", (*queueTest).entryTooFarInTheFutureIsPulledIn},
	{"RemovedEntryMayBeEnqueuedAgain", (*queueTest).removedEntryMayBeEnqueuedAgain},
	{"EnqueueReportsTypesWhoseHeadMovedForward", (*queueTest).enqueueReportsTypesWhoseHeadMovedForward},
	{"PeekAnswersInTheOrderAsked", (*queueTest).peekAnswersInTheOrderAsked},
	{"InspectionTellsWhatTheQueueHolds", (*queueTest).inspectionTellsWhatTheQueueHolds},
	{"InspectionTellsOfALoss", (*queueTest).inspectionTellsOfALoss},
	{"IDsBeyondTwoToThe53Survive", (*queueTest).idsBeyondTwoToThe53Survive},
	{"ThousandsOfEntriesFitInOneCall", (*queueTest).thousandsOfEntriesFitInOneCall},
	{"TypesDoNotMix", (*queueTest).typesDoNotMix},
	{"EmptyInputIsFine", (*queueTest).emptyInputIsFine},
	{"EndedContextIsObeyed", (*queueTest).endedContextIsObeyed},
	{"ListenReturnsWhenItsContextEnds", (*queueTest).listenReturnsWhenItsContextEnds},
	{"LeaderGoesOnLeading", (*queueTest).leaderGoesOnLeading},
	{"SameFingerprintIsAcceptedAgain", (*queueTest).sameFingerprintIsAcceptedAgain},
	{"FullTypeLeavesOutEntriesNotDueYet", (*queueTest).fullTypeLeavesOutEntriesNotDueYet},
	{"FullTypeTakesDueEntries", (*queueTest).fullTypeTakesDueEntries},
	{"FullTypeTakesEntriesThatAreNear", (*queueTest).fullTypeTakesEntriesThatAreNear},
	{"LimitIsEachTypesOwn", (*queueTest).limitIsEachTypesOwn},
	{"LimitZeroIsNone", (*queueTest).limitZeroIsNone},
	{"RebuiltTypeIsNotLost", (*queueTest).rebuiltTypeIsNotLost},
	{"RebuiltTypeIsNotLostWhenItsLastEntryGoes", (*queueTest).rebuiltTypeIsNotLostWhenItsLastEntryGoes},
	{"LostTypeIsOnesToRebuild", (*queueTest).lostTypeIsOnesToRebuild},
	{"OnlyWhoRebuildsMakesWhole", (*queueTest).onlyWhoRebuildsMakesWhole},
	{"RebuildOfTheDeadIsGivenToAnother", (*queueTest).rebuildOfTheDeadIsGivenToAnother},
	{"WholeTypeHasNoLessRoom", (*queueTest).wholeTypeHasNoLessRoom},
	{"LossIsReportedUntilTheTypeIsRebuilt", (*queueTest).lossIsReportedUntilTheTypeIsRebuilt},
	{"LossIsReportedToEachProcess", (*queueTest).lossIsReportedToEachProcess},
	{"AnotherIsNotGivenWhatIsLeased", (*queueTest).anotherIsNotGivenWhatIsLeased},
	{"AnotherFingerprintIsRefused", (*queueTest).anotherFingerprintIsRefused},
	{"AnotherHearsWhatIsNotified", (*queueTest).anotherHearsWhatIsNotified},
	{"AnotherLeadsOnceALeadHasEnded", (*queueTest).anotherLeadsOnceALeadHasEnded},
	{"ClosedQueueRefuses", (*queueTest).closedQueueRefuses},
}

const queueTimeout = 30 * time.Second

type queueTest struct {
	*testing.T
	harness QueueHarness
	ctx     context.Context
	queue   processlog.Queue // as the process of this test uses it
}

func newQueueTest(t *testing.T, h QueueHarness) *queueTest {
	ctx, cancel := context.WithTimeout(context.Background(), queueTimeout)
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, h.Queue.Close())
	})
	return &queueTest{t, h, ctx, h.Queue}
}

// another stands for another process. The caller closes its queue.
func (t *queueTest) another() *queueTest {
	t.Helper()
	if t.harness.Another == nil {
		t.Skip("QueueHarness.Another is nil")
	}
	return &queueTest{t.T, t.harness, t.ctx, t.harness.Another(t.T)}
}

func (t *queueTest) close() {
	t.Helper()
	assert.NoError(t, t.queue.Close())
}

func (t *queueTest) lose() {
	t.Helper()
	if t.harness.Lose == nil {
		t.Skip("QueueHarness.Lose is nil")
	}
	t.harness.Lose(t.T)
}

func dueIn(businessType string, row uint64, d time.Duration) processlog.QueueEntry {
	return processlog.QueueEntry{BusinessType: businessType, ID: processlog.RowID(row), In: d}
}

func (t *queueTest) enqueue(items ...processlog.QueueEntry) (newHeads []string) {
	t.Helper()
	return t.enqueueBy(processlog.EnqueueRules{MaxLease: time.Hour}, items...)
}

func (t *queueTest) enqueueBy(rules processlog.EnqueueRules, items ...processlog.QueueEntry) (newHeads []string) {
	t.Helper()
	newHeads, _, err := t.queue.Enqueue(t.ctx, items, rules)
	require.NoError(t, err)
	return newHeads
}

func (t *queueTest) claim(businessType string, limit int, lease time.Duration) processlog.Leased {
	t.Helper()
	leased, err := t.queue.Claim(t.ctx, businessType, limit, lease)
	require.NoError(t, err)
	return leased
}

func (t *queueTest) awaitClaim(businessType string, limit int, lease time.Duration) processlog.Leased {
	t.Helper()
	for {
		if leased := t.claim(businessType, limit, lease); len(leased.IDs) > 0 {
			return leased
		}
		t.waitFor(time.Millisecond)
	}
}

func (t *queueTest) settle(businessType string, outcomes ...processlog.QueueOutcome) {
	t.Helper()
	require.NoError(t, t.queue.Settle(t.ctx, businessType, outcomes))
}

func (t *queueTest) peek(businessType string) time.Duration {
	t.Helper()
	waits, _, err := t.queue.Peek(t.ctx, []string{businessType})
	require.NoError(t, err)
	require.Len(t, waits, 1)
	return waits[0]
}

func (t *queueTest) waitFor(d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.ctx.Done():
		require.FailNow(t, "waited for too long")
	}
}

func (t *queueTest) requireWithinMinute(total, got time.Duration) {
	t.Helper()
	assert.LessOrEqual(t, got, total+time.Millisecond)
	assert.Greater(t, got, total-time.Minute)
}

func entryIDs(numbers ...uint64) []processlog.ID {
	ids := []processlog.ID{}
	for _, n := range numbers {
		ids = append(ids, processlog.RowID(n))
	}
	return ids
}
