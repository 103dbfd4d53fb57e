package queue

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

func newQueue(t *testing.T, q processlog.Queue) *Queue {
	t.Helper()
	e := engine.New(t.Context(), engine.Config{Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }, Lease: time.Hour,
		PollInterval: time.Second, ReconcileInterval: 10 * time.Second})
	return New(e, Config{Queue: q, Horizon: time.Hour}, false)
}

type storingQueue struct {
	processlog.Queue
	mu      sync.Mutex
	entries []processlog.QueueEntry
	calls   int
}

func (q *storingQueue) Enqueue(_ context.Context, batch []processlog.QueueEntry, _ processlog.EnqueueRules) (heads, lostTypes []string, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.entries = append(q.entries, batch...)
	q.calls++
	return nil, nil, nil
}

// A process that stops or only records makes no rounds of the reconciler, so no round finds out that the queue answers
// again. Instead, one call per PollInterval tries the queue. This call must enqueue all entries that wait at that time.
func TestCallThatFindsTheQueueBackTellsAllThatHasGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		has := &storingQueue{}
		q := newQueue(t, has)
		move := func(ids ...uint64) (all []processlog.QueueEntry) {
			for _, id := range ids {
				entry := processlog.QueueEntry{BusinessType: "refund", ID: processlog.RowID(id)}
				q.move(entry)
				all = append(all, entry)
			}
			synctest.Wait()
			return all
		}
		q.health.recordResult(errors.New("no route"))
		move(1, 2)
		require.Empty(t, has.entries, "the queue has just failed")

		time.Sleep(2 * time.Second)
		require.False(t, q.health.usable(), "without a call nothing is found out")
		want := move(3, 4, 5)
		require.Equal(t, want, has.entries)
		require.True(t, q.health.usable())
		require.Equal(t, slices.Concat(want, move(6)), has.entries)
	})
}

type silentQueue struct {
	processlog.Queue
	settledTypes []string
}

func (q *silentQueue) Settle(ctx context.Context, businessType string, _ []processlog.QueueOutcome) error {
	q.settledTypes = append(q.settledTypes, businessType)
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestQueueThatDoesNotAnswerForOneTypeIsNotAskedForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := &silentQueue{}
		q := newQueue(t, asked)
		for _, businessType := range []string{"refund", "mail", "close_order"} {
			q.settle(businessType, processlog.QueueOutcome{})
		}
		<-q.outcomes.Done()
		require.Equal(t, []string{"refund"}, asked.settledTypes[:1])
		require.False(t, q.health.usable())
		require.Len(t, asked.settledTypes, 1)
	})
}

type peekCounter struct {
	processlog.Queue
	peeks int
}

func (q *peekCounter) Peek(context.Context, []string) (waits []time.Duration, lostTypes []string, err error) {
	q.peeks++
	return nil, nil, nil
}

func TestOneLookServesAllThatWaitsForIt(t *testing.T) {
	queue := &peekCounter{}
	q := newQueue(t, queue)
	q.noteLoss([]string{"refund"})
	before := time.Now()
	require.False(t, q.lookNow(t.Context()).Before(before.Add(q.e.LookInterval())))
	require.Equal(t, 1, queue.peeks)
	require.Empty(t, q.lossSignal)
}

// A select with two ready cases takes either, so the test tries many times.
func TestNoRoundBeginsAfterItsContextHasEnded(t *testing.T) {
	q := newQueue(t, &silentQueue{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 64 {
		require.False(t, q.rounds.lock(ended))
	}
	require.Empty(t, q.rounds.guard)
}

func TestEntriesThatComeDueLaterShareACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		has := &storingQueue{}
		q := newQueue(t, has)
		record := func(id uint64, in time.Duration) {
			q.enqueue([]processlog.QueueEntry{{BusinessType: "refund", ID: processlog.RowID(id), In: in}})
			synctest.Wait()
		}
		calls := func() int { has.mu.Lock(); defer has.mu.Unlock(); return has.calls }
		entries := func() []processlog.QueueEntry { has.mu.Lock(); defer has.mu.Unlock(); return has.entries }
		record(1, time.Minute)
		require.Equal(t, 1, calls(), "nothing was enqueued just before, so the entry does not wait")
		for id := range uint64(50) {
			record(2+id, time.Minute)
		}
		require.Equal(t, 1, calls())
		record(100, 0)
		require.Equal(t, 2, calls())
		require.Equal(t, processlog.RowID(100), entries()[1].ID)
		time.Sleep(laterPause)
		synctest.Wait()
		require.Equal(t, 3, calls())
		require.Len(t, entries(), 52)
		require.Equal(t, time.Minute-laterPause, entries()[51].In, "the entry is not due later because it has waited")
	})
}

func TestWaitOfAnOutcomeIsNoPartOfItsDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowQueue{}
		q := newQueue(t, slow)
		q.settle("refund", processlog.QueueOutcome{In: time.Minute})
		synctest.Wait()
		q.settle("refund", processlog.QueueOutcome{In: time.Minute})
		<-q.outcomes.Done()
		require.Equal(t, []time.Duration{time.Minute, time.Minute - time.Second}, slow.delays)
	})
}

type slowQueue struct {
	processlog.Queue
	delays []time.Duration
}

func (q *slowQueue) Settle(_ context.Context, _ string, outcomes []processlog.QueueOutcome) error {
	for _, o := range outcomes {
		q.delays = append(q.delays, o.In)
	}
	time.Sleep(time.Second)
	return nil
}
