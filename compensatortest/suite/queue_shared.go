package suite

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

func (t *queueTest) lossIsReportedUntilTheTypeIsRebuilt() {
	t.makeWhole("order", "stock")
	t.enqueue(dueIn("order", 2, 0))
	assert.False(t, t.reportsLost("order"))
	assert.False(t, t.reportsLost("stock"))
	t.lose()
	assert.Equal(t, processlog.Never, t.peek("order"))
	assert.True(t, t.reportsLost("order"))
	assert.True(t, t.reportsLost("order"), "a report does not end the loss")
	t.makeWhole("order")
	assert.False(t, t.reportsLost("order"))
	assert.True(t, t.reportsLost("stock"), "each type is rebuilt by itself")
}

func (t *queueTest) lossIsReportedToEachProcess() {
	other := t.another()
	defer other.close()
	t.makeWhole("order")
	assert.False(t, other.reportsLost("order"))
	t.lose()
	late := t.another()
	defer late.close()
	for _, process := range []*queueTest{late, t, other, late} {
		assert.True(t, process.reportsLost("order"))
	}
}

func (t *queueTest) makeWhole(businessTypes ...string) {
	t.Helper()
	t.rebuild(processlog.Token{9}, businessTypes...)
	require.Equal(t, businessTypes, t.rebuilt(processlog.Token{9}, businessTypes...))
}

func (t *queueTest) anotherIsNotGivenWhatIsLeased() {
	other := t.another()
	defer other.close()
	t.enqueue(dueIn("order", 1, 0), dueIn("order", 2, 0))
	theirs, mine := other.claim("order", 1, time.Hour), t.claim("order", 10, 2*time.Hour)
	assert.Len(t, theirs.IDs, 1, "the process finds the entry that another process enqueued")
	assert.ElementsMatch(t, entryIDs(1, 2), slices.Concat(theirs.IDs, mine.IDs))
	assert.Empty(t, other.claim("order", 10, time.Hour).IDs)
	t.requireWithinMinute(time.Hour, mine.Next)
}

func (t *queueTest) anotherFingerprintIsRefused() {
	other := t.another()
	defer other.close()
	require.NoError(t, t.queue.Check(t.ctx, "database one"))
	for _, q := range []processlog.Queue{other.queue, t.queue} {
		require.Error(t, q.Check(t.ctx, "database two"))
		require.NoError(t, q.Check(t.ctx, "database one"), "the refused Check changed nothing")
	}
}

// A notification is lost while the connection is being made, so the test repeats it.
func (t *queueTest) anotherHearsWhatIsNotified() {
	other := t.another()
	defer other.close()
	ends := "\x00ended " + strings.Repeat(strconv.FormatUint(math.MaxUint64, 10)+",", processlog.MaxRows)
	types := []string{"order", "订单: 2", ends}
	heard := make(chan string, 1000)
	ctx, cancel := context.WithCancel(t.ctx)
	var listening sync.WaitGroup
	listening.Go(func() {
		other.queue.Listen(ctx, func(businessType string) {
			select {
			case heard <- businessType:
			default:
			}
		})
	})
	defer listening.Wait()
	defer cancel()
	missing := map[string]bool{types[0]: true, types[1]: true, types[2]: true}
	for len(missing) > 0 {
		require.NoError(t, t.queue.Notify(t.ctx, types))
		t.waitFor(time.Millisecond)
		for range len(heard) {
			businessType := <-heard
			assert.Contains(t, types, businessType)
			delete(missing, businessType)
		}
	}
}

func (t *queueTest) anotherLeadsOnceALeadHasEnded() {
	other := t.another()
	defer other.close()
	require.True(t, t.leads(time.Hour))
	assert.False(t, other.leads(time.Millisecond))
	const period = 60 * time.Millisecond
	begun := time.Now()
	require.True(t, t.leads(period), "the last period that the client asked for counts")
	for !other.leads(time.Hour) {
		t.waitFor(time.Millisecond)
	}
	assert.GreaterOrEqual(t, time.Since(begun), period)
	assert.False(t, t.leads(time.Hour))
}

func (t *queueTest) closedQueueRefuses() {
	closed := t.another()
	t.enqueue(dueIn("order", 1, 0))
	require.NoError(t, t.queue.Check(t.ctx, "database"))
	require.NoError(t, closed.queue.Check(t.ctx, "database"))
	closed.close()
	q := closed.queue
	for name, call := range map[string]func() error{
		"Check": func() error { return q.Check(t.ctx, "database") },
		"Enqueue": func() error {
			_, _, err := q.Enqueue(t.ctx, []processlog.QueueEntry{dueIn("order", 2, 0)}, processlog.EnqueueRules{MaxLease: time.Hour})
			return err
		},
		"Claim":  func() error { _, err := q.Claim(t.ctx, "order", 10, time.Hour); return err },
		"Settle": func() error { return q.Settle(t.ctx, "order", []processlog.QueueOutcome{{ID: processlog.RowID(3)}}) },
		"Peek":   func() error { _, _, err := q.Peek(t.ctx, []string{"order"}); return err },
		"Rebuild": func() error {
			_, err := q.Rebuild(t.ctx, []string{"order"}, processlog.Token{1}, time.Hour)
			return err
		},
		"Rebuilt": func() error { _, err := q.Rebuilt(t.ctx, []string{"order"}, processlog.Token{1}); return err },
		"Notify":  func() error { return q.Notify(t.ctx, []string{"order"}) },
		"Lead":    func() error { _, err := q.Lead(t.ctx, time.Hour); return err },
	} {
		assert.Error(t, call(), name)
	}
	assert.True(t, t.leads(time.Hour), "the other clients keep working, and the closed client changed nothing")
	assert.Equal(t, entryIDs(1), t.claim("order", 10, time.Hour).IDs)
}
