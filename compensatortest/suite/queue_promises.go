package suite

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

func (t *queueTest) noEntryComesDueEarly() {
	const wait = 60 * time.Millisecond
	begun := time.Now()
	t.enqueue(dueIn("order", 1, wait))
	t.awaitClaim("order", 10, time.Minute)
	assert.GreaterOrEqual(t, time.Since(begun), wait)
}

func (t *queueTest) entriesAreClaimedEarliestFirst() {
	t.enqueue(dueIn("order", 1, 60*time.Millisecond), dueIn("order", 2, 20*time.Millisecond), dueIn("order", 3, 40*time.Millisecond))
	t.waitFor(70 * time.Millisecond)
	assert.Equal(t, entryIDs(2, 3, 1), t.claim("order", 10, time.Minute).IDs)
}

func (t *queueTest) claimTakesNoMoreThanItsLimit() {
	t.enqueue(dueIn("order", 1, 0), dueIn("order", 2, 0), dueIn("order", 3, 0))
	assert.Len(t, t.claim("order", 2, time.Minute).IDs, 2)
	assert.Len(t, t.claim("order", 2, time.Minute).IDs, 1)
}

func (t *queueTest) leasedEntryIsGivenToNobodyElse() {
	t.enqueue(dueIn("order", 1, 0))
	require.Equal(t, entryIDs(1), t.claim("order", 10, time.Minute).IDs)
	assert.Empty(t, t.claim("order", 10, time.Minute).IDs)
}

func (t *queueTest) entryIsGivenAgainOnceItsLeaseEnds() {
	const lease = 50 * time.Millisecond
	t.enqueue(dueIn("order", 1, 0))
	begun := time.Now()
	first := t.claim("order", 10, lease)
	require.Equal(t, entryIDs(1), first.IDs)
	second := t.awaitClaim("order", 10, time.Minute)
	assert.GreaterOrEqual(t, time.Since(begun), lease)
	assert.Equal(t, entryIDs(1), second.IDs)
	assert.NotEqual(t, first.Token, second.Token)
}

func (t *queueTest) concurrentClaimersGetEachEntryOnce() {
	const entries, claimers = 1000, 8
	var items []processlog.QueueEntry
	for row := range uint64(entries) {
		items = append(items, dueIn("order", row+1, 0))
	}
	t.enqueue(items...)
	var claimed [claimers][]processlog.ID
	var errs [claimers]error
	var group sync.WaitGroup
	for i := range claimers {
		group.Go(func() {
			for {
				leased, err := t.queue.Claim(t.ctx, "order", 7, time.Hour)
				if errs[i] = err; err != nil || len(leased.IDs) == 0 {
					return
				}
				claimed[i] = append(claimed[i], leased.IDs...)
			}
		})
	}
	group.Wait()
	given := make(map[processlog.ID]int)
	for i := range claimers {
		require.NoError(t, errs[i])
		for _, id := range claimed[i] {
			given[id]++
			assert.Equal(t, 1, given[id], "entry %s", id)
		}
	}
	assert.Len(t, given, entries)
}

func (t *queueTest) claimTellsWhenTheNextEntryIsDue() {
	assert.Equal(t, processlog.Never, t.claim("order", 1, time.Minute).Next, "the queue has no entry left")
	t.enqueue(dueIn("order", 1, 0), dueIn("order", 2, 0), dueIn("order", 3, time.Hour))
	assert.LessOrEqual(t, t.claim("order", 1, 10*time.Minute).Next, time.Duration(0), "entry 2 is due")
	second := t.claim("order", 1, 20*time.Minute)
	t.requireWithinMinute(10*time.Minute, second.Next) // The other lease ends at that time.
	third := t.claim("order", 1, time.Minute)
	assert.Empty(t, third.IDs)
	t.requireWithinMinute(10*time.Minute, third.Next)
	t.settle("order", processlog.QueueOutcome{ID: second.IDs[0], Token: second.Token, In: time.Minute})
	t.requireWithinMinute(time.Minute, t.claim("order", 1, time.Minute).Next)
}

func (t *queueTest) settleRemovesOnlyUnderItsOwnToken() {
	old, current := t.twoLeases()
	t.settle("order", processlog.QueueOutcome{ID: processlog.RowID(1), Token: old, Remove: true})
	t.requireWithinMinute(time.Hour, t.peek("order"))
	t.settle("order", processlog.QueueOutcome{ID: processlog.RowID(1), Token: current, Remove: true})
	assert.Equal(t, processlog.Never, t.peek("order"))
}

func (t *queueTest) settlePutsOffOnlyUnderItsOwnToken() {
	old, current := t.twoLeases()
	t.settle("order", processlog.QueueOutcome{ID: processlog.RowID(1), Token: old, In: 3 * time.Hour})
	t.requireWithinMinute(time.Hour, t.peek("order"))
	t.settle("order", processlog.QueueOutcome{ID: processlog.RowID(1), Token: current, In: 3 * time.Hour})
	t.requireWithinMinute(3*time.Hour, t.peek("order"))
}

// A process may run an entry for longer than the queue's lease, so that another process leases the entry too.
func (t *queueTest) settlePullsInUnderAnyToken() {
	old, current := t.twoLeases()
	t.settle("order", processlog.QueueOutcome{ID: processlog.RowID(1), Token: old, In: 10 * time.Minute})
	t.requireWithinMinute(10*time.Minute, t.peek("order"))
	t.settle("order", processlog.QueueOutcome{ID: processlog.RowID(1), Token: current, In: time.Hour})
	t.requireWithinMinute(10*time.Minute, t.peek("order"))
	t.settle("order", processlog.QueueOutcome{ID: processlog.RowID(1), Token: current})
	assert.LessOrEqual(t, t.peek("order"), time.Duration(0))
	t.rebuild(processlog.Token{1}, "stock")
	t.rebuilt(processlog.Token{1}, "stock")
	t.settle("stock", processlog.QueueOutcome{ID: processlog.RowID(1), Token: old})
	assert.Equal(t, processlog.Never, t.peek("stock"), "settle does not add an entry that is not in the queue")
}

// The queue has lost a leased entry, and Settle brings it back with a new due time. Another process then enqueues the
// entry from an older reading of its row, with the end of the old lease as the due time. The earlier due time must
// stay.
func (t *queueTest) settleBringsBackWhatIsLost() {
	t.settle("order", processlog.QueueOutcome{ID: processlog.RowID(2), Token: 1, Remove: true})
	assert.Equal(t, processlog.Never, t.peek("order"))
	if !t.reportsLost("order") {
		return
	}
	t.settle("order", processlog.QueueOutcome{ID: processlog.RowID(2), Token: 1, In: 10 * time.Minute})
	t.requireWithinMinute(10*time.Minute, t.peek("order"))
	t.enqueue(dueIn("order", 2, 20*time.Minute))
	t.requireWithinMinute(10*time.Minute, t.peek("order"))
}

// The first of the two leases has ended, and the second one lasts an hour.
func (t *queueTest) twoLeases() (old, current int64) {
	t.Helper()
	t.enqueue(dueIn("order", 1, 0))
	first := t.claim("order", 1, time.Millisecond)
	require.Equal(t, entryIDs(1), first.IDs)
	return first.Token, t.awaitClaim("order", 1, time.Hour).Token
}

// Failure: F54
func (t *queueTest) settledEntryMayWaitForTheLongestTime() {
	t.enqueue(dueIn("order", 1, 0))
	leased := t.claim("order", 1, time.Minute)
	t.settle("order", processlog.QueueOutcome{ID: leased.IDs[0], Token: leased.Token, In: farthest})
	t.requireWithinMinute(farthest, t.peek("order"))
	assert.Empty(t, t.claim("order", 1, time.Minute).IDs)
	t.enqueue(dueIn("order", 1, time.Hour))
	t.requireWithinMinute(time.Hour, t.peek("order"))
}

func (t *queueTest) settledEntryComesDueAgainNotEarly() {
	const wait = 60 * time.Millisecond
	t.enqueue(dueIn("order", 1, 0))
	token := t.claim("order", 1, time.Hour).Token
	begun := time.Now()
	t.settle("order", processlog.QueueOutcome{ID: processlog.RowID(1), Token: token, In: wait})
	assert.Equal(t, entryIDs(1), t.awaitClaim("order", 1, time.Minute).IDs)
	assert.GreaterOrEqual(t, time.Since(begun), wait)
}

func (t *queueTest) settledEntryMayBeDueAgainAtOnce() {
	t.enqueue(dueIn("order", 1, 0), dueIn("order", 2, 0))
	token := t.claim("order", 2, time.Hour).Token
	t.settle("order",
		processlog.QueueOutcome{ID: processlog.RowID(1), Token: token},
		processlog.QueueOutcome{ID: processlog.RowID(2), Token: token, In: -time.Hour})
	assert.ElementsMatch(t, entryIDs(1, 2), t.claim("order", 2, time.Minute).IDs)
}

func (t *queueTest) knownEntryKeepsItsPlace() {
	t.enqueue(dueIn("order", 1, time.Hour))
	// Enqueue keeps the stored time of an entry that the queue already has, because this time may be the end of a
	// lease.
	t.enqueue(dueIn("order", 1, 30*time.Minute))
	t.requireWithinMinute(time.Hour, t.peek("order"))
	t.enqueue(dueIn("order", 1, 3*time.Hour))
	t.requireWithinMinute(time.Hour, t.peek("order"))
}

func (t *queueTest) leasedEntryKeepsItsLeaseWhenEnqueued() {
	t.enqueue(dueIn("order", 1, 0))
	require.Len(t, t.claim("order", 1, time.Hour).IDs, 1)
	for range 50 { // Enqueue in the same millisecond as a lease of the maximum length.
		t.enqueue(dueIn("order", 1, 0))
	}
	assert.Empty(t, t.claim("order", 1, time.Minute).IDs)
	t.requireWithinMinute(time.Hour, t.peek("order"))
}

func (t *queueTest) entryTooFarInTheFutureIsPulledIn() {
	t.enqueue(dueIn("order", 1, 3*time.Hour), dueIn("order", 2, 3*time.Hour))
	t.enqueue(dueIn("order", 1, 30*time.Minute))
	t.requireWithinMinute(30*time.Minute, t.peek("order"))
	t.enqueue(dueIn("order", 2, 0))
	assert.Equal(t, entryIDs(2), t.claim("order", 10, time.Hour).IDs)
}

func (t *queueTest) removedEntryMayBeEnqueuedAgain() {
	for range 2 {
		t.enqueue(dueIn("order", 1, 0))
		leased := t.claim("order", 1, time.Hour)
		require.Equal(t, entryIDs(1), leased.IDs)
		t.settle("order", processlog.QueueOutcome{ID: processlog.RowID(1), Token: leased.Token, Remove: true})
	}
}

func (t *queueTest) enqueueReportsTypesWhoseHeadMovedForward() {
	assert.Equal(t, []string{"order"}, t.enqueue(dueIn("order", 1, time.Hour)), "first entry")
	assert.Empty(t, t.enqueue(dueIn("order", 2, 2*time.Hour)), "the entry is later than the first one, so it is no new head")
	assert.Empty(t, t.enqueue(dueIn("order", 1, time.Hour)), "known")
	assert.ElementsMatch(t, []string{"order", "stock"}, t.enqueue(
		dueIn("order", 3, time.Minute), dueIn("order", 4, 3*time.Hour), dueIn("stock", 5, 0), dueIn("stock", 6, 0), dueIn("order", 7, 0)))
	t.claim("order", 10, 2*time.Minute)
	assert.Equal(t, []string{"order"}, t.enqueue(dueIn("order", 8, 0)), "the entry is due before the earliest lease ends, so it is a new head")
}

func (t *queueTest) peekAnswersInTheOrderAsked() {
	const types = 300
	var items []processlog.QueueEntry
	var asked []string
	for i := range types {
		name := fmt.Sprintf("type %d", i)
		asked = append(asked, name)
		if i%2 == 0 {
			items = append(items, dueIn(name, 1, time.Duration(i)*time.Hour), dueIn(name, 2, 1000*time.Hour))
		}
	}
	t.enqueue(items...)
	asked = append(asked, asked[2])
	waits, _, err := t.queue.Peek(t.ctx, asked)
	require.NoError(t, err)
	require.Len(t, waits, types+1)
	for i, wait := range waits[:types] {
		if i%2 == 1 {
			assert.Equal(t, processlog.Never, wait, "type %d", i)
		} else {
			t.requireWithinMinute(time.Duration(i)*time.Hour, wait)
		}
	}
	t.requireWithinMinute(2*time.Hour, waits[types])
}

func (t *queueTest) idsBeyondTwoToThe53Survive() {
	ids := entryIDs(1<<53, 1<<53+1, math.MaxInt64-1, math.MaxInt64, math.MaxUint64-1, math.MaxUint64)
	for _, id := range ids {
		t.enqueue(dueIn("order", id.Row(), 0))
	}
	leased := t.claim("order", 10, time.Hour)
	assert.ElementsMatch(t, ids, leased.IDs)
	for _, id := range leased.IDs {
		t.settle("order", processlog.QueueOutcome{ID: id, Token: leased.Token, Remove: true})
	}
	assert.Equal(t, processlog.Never, t.peek("order"))
}

func (t *queueTest) thousandsOfEntriesFitInOneCall() {
	const entries = 2500
	var items []processlog.QueueEntry
	for row := range uint64(entries) {
		items = append(items, dueIn("order", row+1, 0))
	}
	t.enqueue(slices.Concat(items, items[:100])...)
	var outcomes []processlog.QueueOutcome
	for len(outcomes) < entries {
		leased := t.awaitClaim("order", entries, time.Hour)
		for _, id := range leased.IDs {
			outcomes = append(outcomes, processlog.QueueOutcome{ID: id, Token: leased.Token, Remove: true})
		}
	}
	assert.Empty(t, t.claim("order", entries, time.Hour).IDs)
	t.settle("order", outcomes...)
	assert.Equal(t, processlog.Never, t.peek("order"))
}

func (t *queueTest) typesDoNotMix() {
	names := []string{"order", "order:0", "order:0:due", "Order", "}", "{", "} {x}", "订单", "a b\t\"'", "order:1:due"}
	for i, name := range names {
		t.enqueue(dueIn(name, uint64(i+1), 0), dueIn(name, 1000, 0))
	}
	for i, name := range names {
		leased := t.claim(name, 10, time.Hour)
		assert.ElementsMatch(t, entryIDs(uint64(i+1), 1000), leased.IDs, "type %q", name)
		for _, id := range leased.IDs {
			t.settle(name, processlog.QueueOutcome{ID: id, Token: leased.Token, Remove: true})
		}
		assert.Equal(t, processlog.Never, t.peek(name), "type %q", name)
	}
}

func (t *queueTest) emptyInputIsFine() {
	assert.Empty(t, t.enqueue())
	t.settle("order")
	t.settle("order", processlog.QueueOutcome{ID: processlog.RowID(1), Token: 1, Remove: true})
	assert.Equal(t, processlog.Never, t.peek("order"))
	waits, _, err := t.queue.Peek(t.ctx, nil)
	require.NoError(t, err)
	assert.Empty(t, waits)
	require.NoError(t, t.queue.Notify(t.ctx, nil))
	assert.Empty(t, t.rebuild(processlog.Token{1}))
	assert.Empty(t, t.rebuilt(processlog.Token{1}))
	t.enqueue(dueIn("order", 1, 0))
	for _, limit := range []int{0, -1} {
		leased := t.claim("order", limit, time.Minute)
		assert.Empty(t, leased.IDs)
		assert.LessOrEqual(t, leased.Next, time.Duration(0))
	}
}

func (t *queueTest) endedContextIsObeyed() {
	t.enqueue(dueIn("order", 1, 0))
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	_, _, err := t.queue.Enqueue(ctx, []processlog.QueueEntry{dueIn("order", 2, 0)}, processlog.EnqueueRules{MaxLease: time.Hour})
	assert.ErrorIs(t, err, context.Canceled)
	_, err = t.queue.Claim(ctx, "order", 1, time.Hour)
	assert.ErrorIs(t, err, context.Canceled)
	err = t.queue.Settle(ctx, "order", []processlog.QueueOutcome{{ID: processlog.RowID(1), Remove: true}})
	assert.ErrorIs(t, err, context.Canceled)
	_, _, err = t.queue.Peek(ctx, []string{"order"})
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, entryIDs(1), t.claim("order", 10, time.Hour).IDs, "the call with an ended context changed nothing")
}

func (t *queueTest) listenReturnsWhenItsContextEnds() {
	require.NoError(t, t.queue.Notify(t.ctx, []string{"order", "stock"}))
	ctx, cancel := context.WithCancel(t.ctx)
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		t.queue.Listen(ctx, func(string) {})
	}()
	t.waitFor(20 * time.Millisecond)
	select {
	case <-returned:
		assert.Fail(t, "Listen returned before its context ended")
	default:
	}
	cancel()
	select {
	case <-returned:
	case <-t.ctx.Done():
		assert.Fail(t, "Listen did not return")
	}
}

func (t *queueTest) leads(period time.Duration) bool {
	t.Helper()
	leads, err := t.queue.Lead(t.ctx, period)
	require.NoError(t, err)
	return leads
}

func (t *queueTest) leaderGoesOnLeading() {
	for range 3 {
		assert.True(t, t.leads(time.Minute))
	}
}

func (t *queueTest) sameFingerprintIsAcceptedAgain() {
	for range 2 {
		assert.NoError(t, t.queue.Check(t.ctx, "database one"))
	}
}

var threeAnHour = processlog.EnqueueRules{MaxLease: time.Hour, Limit: 3}

func (t *queueTest) fullTypeLeavesOutEntriesNotDueYet() {
	t.enqueueBy(threeAnHour, dueIn("order", 1, time.Hour), dueIn("order", 2, time.Hour), dueIn("order", 3, time.Hour), dueIn("order", 4, time.Minute))
	t.requireWithinMinute(time.Hour, t.peek("order"))
	assert.Empty(t, t.enqueueBy(threeAnHour, dueIn("order", 5, time.Minute)))
	t.requireWithinMinute(time.Hour, t.peek("order"))
	t.enqueueBy(threeAnHour, dueIn("order", 1, time.Hour))
	t.enqueueBy(processlog.EnqueueRules{MaxLease: time.Minute, Limit: 3}, dueIn("order", 2, time.Minute))
	t.requireWithinMinute(time.Minute, t.peek("order"))
}

func (t *queueTest) fullTypeTakesDueEntries() {
	t.enqueueBy(threeAnHour, dueIn("order", 1, time.Hour), dueIn("order", 2, time.Hour), dueIn("order", 3, time.Hour))
	assert.Equal(t, []string{"order"}, t.enqueueBy(threeAnHour, dueIn("order", 4, 0), dueIn("order", 5, 0)))
	assert.ElementsMatch(t, entryIDs(4, 5), t.claim("order", 10, time.Hour).IDs)
}

func (t *queueTest) fullTypeTakesEntriesThatAreNear() {
	rules := threeAnHour
	rules.Near = time.Minute
	t.enqueueBy(rules, dueIn("order", 1, time.Hour), dueIn("order", 2, time.Hour), dueIn("order", 3, time.Hour))
	assert.Empty(t, t.enqueueBy(rules, dueIn("order", 4, 2*time.Minute)))
	assert.Equal(t, []string{"order"}, t.enqueueBy(rules, dueIn("order", 5, time.Minute)))
	t.requireWithinMinute(time.Minute, t.peek("order"))
}

func (t *queueTest) limitIsEachTypesOwn() {
	for _, name := range []string{"order", "stock"} {
		t.enqueueBy(threeAnHour, dueIn(name, 1, time.Hour), dueIn(name, 2, time.Hour))
	}
	assert.Equal(t, []string{"stock"}, t.enqueueBy(threeAnHour, dueIn("stock", 3, time.Minute)))
}

func (t *queueTest) limitZeroIsNone() {
	for row := range uint64(100) {
		t.enqueue(dueIn("order", row+1, time.Hour))
	}
	assert.Equal(t, []string{"order"}, t.enqueue(dueIn("order", 101, time.Minute)))
}

func (t *queueTest) rebuild(token processlog.Token, businessTypes ...string) (mine []string) {
	t.Helper()
	return t.rebuildFor(time.Hour, token, businessTypes...)
}

func (t *queueTest) rebuildFor(period time.Duration, token processlog.Token, businessTypes ...string) (mine []string) {
	t.Helper()
	mine, err := t.queue.Rebuild(t.ctx, businessTypes, token, period)
	require.NoError(t, err)
	return mine
}

func (t *queueTest) rebuilt(token processlog.Token, businessTypes ...string) (whole []string) {
	t.Helper()
	whole, err := t.queue.Rebuilt(t.ctx, businessTypes, token)
	require.NoError(t, err)
	return whole
}

// reportsLost returns whether the queue reports the type as lost. It requires that Peek, Enqueue and Claim agree on
// this. Its call of Enqueue adds entry 1 of the type, due in an hour.
func (t *queueTest) reportsLost(businessType string) bool {
	t.Helper()
	_, peeked, err := t.queue.Peek(t.ctx, []string{businessType})
	require.NoError(t, err)
	_, enqueued, err := t.queue.Enqueue(t.ctx, []processlog.QueueEntry{dueIn(businessType, 1, time.Hour)}, processlog.EnqueueRules{MaxLease: 2 * time.Hour})
	require.NoError(t, err)
	lost := t.claim(businessType, 0, time.Minute).Lost
	assert.Equal(t, lost, slices.Contains(peeked, businessType), "Peek reports whether %s is lost", businessType)
	assert.Equal(t, lost, slices.Contains(enqueued, businessType), "Enqueue reports whether %s is lost", businessType)
	return lost
}

func (t *queueTest) rebuiltTypeIsNotLost() {
	t.reportsLost("order") // Before the first rebuild of a type, a queue is free to report the type as lost or not.
	t.rebuild(processlog.Token{1}, "order", "stock")
	t.enqueue(dueIn("order", 2, 0))
	assert.Equal(t, []string{"order", "stock"}, t.rebuilt(processlog.Token{1}, "order", "stock"))
	assert.False(t, t.reportsLost("order"))
	assert.False(t, t.reportsLost("stock"))
	assert.Equal(t, entryIDs(2), t.claim("order", 10, time.Hour).IDs)
	assert.Empty(t, t.rebuild(processlog.Token{2}, "order"), "a type that is not lost needs no rebuild")
	assert.Equal(t, []string{"order"}, t.rebuilt(processlog.Token{2}, "order"), "the type is complete")
}

func (t *queueTest) rebuiltTypeIsNotLostWhenItsLastEntryGoes() {
	t.rebuild(processlog.Token{1}, "order")
	t.rebuilt(processlog.Token{1}, "order")
	assert.Equal(t, processlog.Never, t.peek("order"))
	t.enqueue(dueIn("order", 2, 0))
	leased := t.claim("order", 1, time.Minute)
	t.settle("order", processlog.QueueOutcome{ID: leased.IDs[0], Token: leased.Token, Remove: true})
	assert.Equal(t, processlog.Never, t.peek("order"))
	assert.Equal(t, processlog.Never, t.claim("order", 1, time.Minute).Next)
	assert.False(t, t.reportsLost("order"))
}

func (t *queueTest) lostTypeIsOnesToRebuild() {
	if !t.reportsLost("order") {
		return
	}
	assert.Equal(t, []string{"order"}, t.rebuild(processlog.Token{1}, "order"))
	assert.Empty(t, t.rebuild(processlog.Token{2}, "order"))
	assert.Equal(t, []string{"stock"}, t.rebuild(processlog.Token{2}, "order", "stock"))
	assert.True(t, t.reportsLost("order"), "no process has reported the end of the rebuild")
	assert.Equal(t, []string{"order"}, t.rebuild(processlog.Token{1}, "order"), "the rebuilding process may extend its period")
}

func (t *queueTest) onlyWhoRebuildsMakesWhole() {
	if !t.reportsLost("order") {
		return
	}
	assert.Empty(t, t.rebuilt(processlog.Token{1}, "order"))
	t.rebuild(processlog.Token{1}, "order")
	assert.Empty(t, t.rebuilt(processlog.Token{2}, "order"))
	assert.True(t, t.reportsLost("order"))
	assert.Equal(t, []string{"order"}, t.rebuilt(processlog.Token{1}, "order", "stock"))
	assert.False(t, t.reportsLost("order"))
	assert.True(t, t.reportsLost("stock"))
}

func (t *queueTest) rebuildOfTheDeadIsGivenToAnother() {
	if !t.reportsLost("order") {
		return
	}
	const period = 60 * time.Millisecond
	begun := time.Now()
	require.Equal(t, []string{"order"}, t.rebuildFor(period, processlog.Token{1}, "order"))
	for len(t.rebuild(processlog.Token{2}, "order")) == 0 {
		t.waitFor(time.Millisecond)
	}
	assert.GreaterOrEqual(t, time.Since(begun), period)
	assert.Empty(t, t.rebuild(processlog.Token{3}, "order"), "the process that took over is rebuilding the type")
	assert.Equal(t, []string{"order"}, t.rebuilt(processlog.Token{2}, "order"))
}

func (t *queueTest) wholeTypeHasNoLessRoom() {
	t.rebuild(processlog.Token{1}, "order")
	for _, businessType := range []string{"order", "stock"} {
		t.enqueueBy(threeAnHour, dueIn(businessType, 1, time.Hour), dueIn(businessType, 2, time.Hour))
		t.rebuilt(processlog.Token{1}, "order")
		assert.Equal(t, []string{businessType}, t.enqueueBy(threeAnHour, dueIn(businessType, 3, time.Minute)))
		assert.Empty(t, t.enqueueBy(threeAnHour, dueIn(businessType, 4, time.Second)))
	}
}

// inspect skips the test if the queue is no QueueInspector.
func (t *queueTest) inspect(businessType string, row uint64) processlog.Queued {
	t.Helper()
	inspector, can := t.queue.(processlog.QueueInspector)
	if !can {
		t.Skip("the queue is no processlog.QueueInspector")
	}
	found, err := inspector.Inspect(t.ctx, businessType, processlog.RowID(row))
	require.NoError(t, err)
	return found
}

func (t *queueTest) inspectionTellsWhatTheQueueHolds() {
	assert.False(t, t.inspect("order", 1).Has, "the queue is empty")
	t.enqueue(dueIn("order", 1, time.Hour), dueIn("order", 2, 0), dueIn("mail", 3, 0))
	later := t.inspect("order", 1)
	assert.True(t, later.Has)
	assert.Greater(t, later.In, 50*time.Minute)
	assert.LessOrEqual(t, later.In, time.Hour+time.Second)
	now := t.inspect("order", 2)
	assert.True(t, now.Has)
	assert.Zero(t, now.In, "the entry is due")
	assert.False(t, t.inspect("order", 3).Has, "the entry has another type")

	leased := t.claim("order", 10, time.Hour)
	require.Equal(t, entryIDs(2), leased.IDs)
	assert.Greater(t, t.inspect("order", 2).In, 50*time.Minute, "the lease has an hour left")
	require.NoError(t, t.queue.Settle(t.ctx, "order", []processlog.QueueOutcome{{ID: processlog.RowID(2), Token: leased.Token, Remove: true}}))
	assert.False(t, t.inspect("order", 2).Has, "the entry has ended")
}

func (t *queueTest) inspectionTellsOfALoss() {
	if t.harness.Lose == nil {
		t.Skip("QueueHarness.Lose is nil")
	}
	t.enqueue(dueIn("order", 1, 0))
	token := processlog.NewToken()
	mine, err := t.queue.Rebuild(t.ctx, []string{"order"}, token, time.Hour)
	require.NoError(t, err)
	require.Equal(t, []string{"order"}, mine)
	_, err = t.queue.Rebuilt(t.ctx, []string{"order"}, token)
	require.NoError(t, err)
	require.Equal(t, processlog.Queued{Has: true}, t.inspect("order", 1))
	t.harness.Lose(t.T)
	require.Equal(t, processlog.Queued{Lost: true}, t.inspect("order", 1))
}
