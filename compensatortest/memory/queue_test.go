package memory

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// The clock of a bubble starts at a whole millisecond, where a rounding fault would not show. So the test starts
// between two milliseconds.
func inQueueBubble(t *testing.T, test func(t *queueTest, shared *Queue)) {
	synctest.Test(t, func(t *testing.T) {
		<-time.After(700 * time.Microsecond)
		shared := NewQueue()
		test(&queueTest{t, t.Context(), shared.Client()}, shared)
	})
}

type queueTest struct {
	*testing.T
	ctx   context.Context
	queue processlog.Queue
}

func (t *queueTest) withClient(q processlog.Queue) *queueTest { return &queueTest{t.T, t.ctx, q} }

func (t *queueTest) lost(businessType string) bool {
	t.Helper()
	_, lostTypes, err := t.queue.Peek(t.ctx, []string{businessType})
	require.NoError(t, err)
	return len(lostTypes) > 0
}

func (t *queueTest) makeWhole(businessType string) {
	t.Helper()
	_, err := t.queue.Rebuild(t.ctx, []string{businessType}, processlog.Token{1}, time.Hour)
	require.NoError(t, err)
	_, err = t.queue.Rebuilt(t.ctx, []string{businessType}, processlog.Token{1})
	require.NoError(t, err)
}

func (t *queueTest) leads(period time.Duration) bool {
	t.Helper()
	leads, err := t.queue.Lead(t.ctx, period)
	require.NoError(t, err)
	return leads
}

func (t *queueTest) enqueue(items ...processlog.QueueEntry) {
	t.Helper()
	_, _, err := t.queue.Enqueue(t.ctx, items, processlog.EnqueueRules{MaxLease: time.Hour})
	require.NoError(t, err)
}

func (t *queueTest) claim(businessType string, limit int, lease time.Duration) processlog.Leased {
	t.Helper()
	leased, err := t.queue.Claim(t.ctx, businessType, limit, lease)
	require.NoError(t, err)
	return leased
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

func (t *queueTest) pass(d time.Duration) { <-time.After(d) }

func dueIn(businessType string, row uint64, d time.Duration) processlog.QueueEntry {
	return processlog.QueueEntry{BusinessType: businessType, ID: processlog.RowID(row), In: d}
}

func entryIDs(numbers ...uint64) (ids []processlog.ID) {
	for _, n := range numbers {
		ids = append(ids, processlog.RowID(n))
	}
	return ids
}

func TestClientsOfAMemoryQueueShareItsEntries(t *testing.T) {
	inQueueBubble(t, func(t *queueTest, shared *Queue) {
		other := t.withClient(shared.Client())
		t.enqueue(dueIn("order", 1, 0), dueIn("order", 2, 0))
		mine := t.claim("order", 1, time.Minute)
		theirs := other.claim("order", 9, time.Hour)
		assert.Equal(t, entryIDs(1), mine.IDs)
		assert.Equal(t, entryIDs(2), theirs.IDs)
		other.settle("order", processlog.QueueOutcome{ID: mine.IDs[0], Token: mine.Token, Remove: true})
		assert.Len(t, shared.Members(), 1, "the token decides who may remove an entry, not the client")

		require.NoError(t, other.queue.Close())
		_, err := other.queue.Claim(t.ctx, "order", 1, time.Minute)
		require.Error(t, err)
		t.claim("order", 1, time.Minute)
	})
}

func TestEachClientOfAMemoryQueueLearnsOfALoss(t *testing.T) {
	inQueueBubble(t, func(t *queueTest, shared *Queue) {
		other := t.withClient(shared.Client())
		t.makeWhole("order")
		assert.Equal(t, []bool{false, false}, []bool{t.lost("order"), other.lost("order")})
		require.NoError(t, t.queue.Check(t.ctx, "one"))
		require.ErrorAs(t, other.queue.Check(t.ctx, "two"), new(*processlog.FieldError))
		t.enqueue(dueIn("order", 1, 0))
		shared.Lose()
		assert.Empty(t, shared.Members())
		assert.Equal(t, []bool{true, true}, []bool{t.lost("order"), other.lost("order")})
		require.NoError(t, other.queue.Check(t.ctx, "two"), "the lost queue has no owner")
	})
}

func TestMemoryQueueGoesBackToASnapshotUnnoticed(t *testing.T) {
	inQueueBubble(t, func(t *queueTest, shared *Queue) {
		t.makeWhole("order")
		t.enqueue(dueIn("order", 1, 0), dueIn("stock", 2, time.Hour))
		snapshot := shared.Snapshot()
		leased := t.claim("order", 1, time.Minute)
		t.settle("order", processlog.QueueOutcome{ID: leased.IDs[0], Token: leased.Token, Remove: true})
		t.enqueue(dueIn("stock", 3, 0))
		for range 2 {
			shared.Restore(snapshot)
			assert.Equal(t, entryIDs(1), t.claim("order", 9, time.Minute).IDs)
			assert.Empty(t, t.claim("stock", 9, time.Minute).IDs)
			assert.False(t, t.lost("order"))
		}
		shared.Lose()
		assert.True(t, t.lost("order"))
		shared.Restore(snapshot)
		assert.False(t, t.lost("order"), "the snapshot says that the type is whole")
	})
}

func TestMemoryQueueGoesByItsOwnClock(t *testing.T) {
	inQueueBubble(t, func(t *queueTest, shared *Queue) {
		t.enqueue(dueIn("order", 1, time.Hour))
		began := shared.Members()[0]
		shared.ShiftClock(50 * time.Minute)
		assert.Equal(t, 10*time.Minute, began.In-50*time.Minute-time.Millisecond, "the due time is rounded up by a millisecond")
		assert.Equal(t, began.In-50*time.Minute, t.peek("order"))
		shared.ShiftClock(-10 * time.Minute)
		assert.Equal(t, []Member{{"order", processlog.RowID(1), began.At, began.In - 40*time.Minute}}, shared.Members())
		t.pass(20*time.Second + time.Millisecond)
		assert.Empty(t, t.claim("order", 1, time.Hour).IDs)
		shared.ShiftClock(20 * time.Minute)
		assert.Equal(t, entryIDs(1), t.claim("order", 1, time.Hour).IDs)
	})
}

func TestOneClientOfAMemoryQueueLeads(t *testing.T) {
	inQueueBubble(t, func(t *queueTest, shared *Queue) {
		other := t.withClient(shared.Client())
		assert.True(t, t.leads(time.Second))
		assert.False(t, other.leads(time.Second))
		t.pass(time.Second)
		assert.False(t, other.leads(time.Second), "the first client leads up to the period's last millisecond")
		assert.True(t, t.leads(time.Second))
		t.pass(time.Second + time.Millisecond)
		assert.True(t, other.leads(time.Second))
		assert.False(t, t.leads(time.Second))
	})
}

func TestEveryListeningClientOfAMemoryQueueHearsEveryNotification(t *testing.T) {
	inQueueBubble(t, func(t *queueTest, shared *Queue) {
		ctx, cancel := context.WithCancel(t.ctx)
		var heard [2][]string
		for i, q := range []processlog.Queue{t.queue, shared.Client()} {
			go q.Listen(ctx, func(businessType string) { heard[i] = append(heard[i], businessType) })
		}
		synctest.Wait()
		require.NoError(t, t.queue.Notify(t.ctx, []string{"order", "stock"}))
		require.NoError(t, t.queue.Notify(t.ctx, []string{"order"}))
		synctest.Wait()
		for i := range heard {
			assert.Equal(t, []string{"order", "stock", "order"}, heard[i])
		}
		cancel()
		synctest.Wait()
		require.NoError(t, t.queue.Notify(t.ctx, []string{"order"}))
		assert.Empty(t, shared.listeners)
	})
}
