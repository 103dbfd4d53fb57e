package queueloss

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

func evict(w *harness.World, businessType string) {
	w.T.Helper()
	require.NoError(w.T, w.Redis.Del(w.T.Context(), w.DueKey(businessType)).Err())
}

// rarely returns a configuration in which the reconciler and the poll run only once, at the start.
func rarely(w *harness.World) compensator.Config {
	cfg := w.QuickConfig()
	cfg.ReconcileInterval, cfg.PollInterval, cfg.Grace, cfg.Lease = time.Hour, time.Hour, time.Hour, time.Minute
	cfg.Observer.AttemptStarted = func(e observe.AttemptEvent) {
		assert.GreaterOrEqual(w.T, e.Late, time.Duration(0), "entry %s runs before it is due", e.ID)
	}
	return cfg
}

// Failure: F44
func TestEntriesOfATypeThatRedisLostAreRunByAllProcesses(t *testing.T) {
	t.Parallel()
	const instances, slots, due, later = 3, 8, 60, 20
	w := harness.NewWorld(t).WithRedis()
	var ran harness.Calls
	var began atomic.Int64
	var idle sync.WaitGroup // counts the instances that have run no entry since Redis lost the type
	idle.Add(instances)
	lost, helped := make(chan struct{}), make(chan struct{})
	for range instances {
		c := w.New(rarely(w))
		help := sync.OnceFunc(idle.Done)
		_, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
			ran.Add(e.ID)
			if began.Add(1) <= instances*slots {
				<-lost
				return nil
			}
			help()
			<-helped
			return nil
		}, &compensator.HandlerConfig[harness.Order]{Concurrency: slots, Timeout: 2 * harness.Timeout})
		require.NoError(t, err)
		w.Run(c)
	}
	w.WaitComplete("close_order")
	recorder := w.New(w.QuickConfig()) // This instance has no slots.
	for i := range due + later {
		w.RecordDelayed(recorder, time.Duration(i/due)*3*time.Second)
	}
	w.Eventually(func() bool { return began.Load() == instances*slots && w.Queued() == due+later }, "all slots are taken, and all else waits in the queue")
	evict(w, "close_order")
	close(lost)
	all := make(chan struct{})
	go func() {
		idle.Wait()
		close(all)
	}()
	w.Wait(all, "each process runs some of the entries that were lost")
	close(helped)
	w.WaitAllEnded()
	assert.Equal(t, due+later, ran.Total())
	assert.Equal(t, due+later, w.Count("common_process_log WHERE version=2"), "one claim and one outcome each")
	w.WaitComplete("close_order")
}

// Failure: F44
func TestTypeThatRedisLostIsRebuiltAlone(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	rebuilt := make(chan []string, 100)
	cfg := rarely(w)
	cfg.Observer.Reconciled = func(e observe.ReconciledEvent) { rebuilt <- e.RebuiltTypes }
	c := w.New(cfg)
	harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	users, _ := harness.HandleCounted(t, c, "sync_user", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	w.WaitComplete("close_order")
	w.WaitComplete("sync_user")
	id := w.RecordDelayed(c, time.Minute)
	w.WaitInQueue(id)
	user := w.Record(users, 1, compensator.Options{Delay: time.Minute}).String()
	w.Eventually(func() bool { return w.Redis.ZRem(t.Context(), w.DueKey("sync_user"), user).Val() == 1 }, "the other type's queue is short of an entry")
	for _, lose := range []func(){
		func() { evict(w, "close_order") }, // Nothing comes due after this loss, and no entry is recorded.
		func() {
			assert.NoError(t, w.Redis.ZRem(t.Context(), w.DueKey("close_order"), w.CompleteMark("close_order")).Err())
		},
	} {
		lose()
		for !slices.Equal([]string{"close_order"}, harness.Receive(t, rebuilt)) {
			continue // Skip this event, which comes from the rebuild at the start.
		}
		require.True(t, w.InQueue(id))
		w.WaitComplete("close_order")
	}
	require.Error(t, w.Redis.ZScore(t.Context(), w.DueKey("sync_user"), user).Err(), "the other type is left alone")
}

// No process here handles the type, so only a process that records entries of the type can notice that Redis lost the
// type's queue.
// Failure: F44
func TestRecordingNoticesThatRedisLostAType(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c := w.New(rarely(w))
	harness.HandleCounted(t, c, "sync_user", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	first := w.RecordDelayed(c, time.Minute)
	w.WaitComplete("close_order")
	evict(w, "close_order")
	second := w.RecordDelayed(c, time.Minute)
	w.WaitInQueue(first)
	w.WaitInQueue(second)
	w.WaitComplete("close_order")
}

// blindStore fails each Scan, so a rebuild finds nothing to enqueue.
type blindStore struct{ processlog.Store }

func (blindStore) Scan(context.Context, processlog.Window) ([]processlog.Scheduled, error) {
	return nil, errors.New("gone away")
}

// blindLater is like blindStore once blind is set.
type blindLater struct {
	processlog.Store
	blind atomic.Bool
}

func (s *blindLater) Scan(ctx context.Context, w processlog.Window) ([]processlog.Scheduled, error) {
	if s.blind.Load() {
		return blindStore{}.Scan(ctx, w)
	}
	return s.Store.Scan(ctx, w)
}

// Once calm is set, farsighted's Peek answers that nothing is due and nothing is lost.
type farsighted struct {
	processlog.Queue
	calm  atomic.Bool
	asked chan struct{}
}

func (q *farsighted) Peek(ctx context.Context, businessTypes []string) ([]time.Duration, []string, error) {
	waits, lost, err := q.Queue.Peek(ctx, businessTypes)
	if q.calm.Load() && err == nil {
		lost = nil
		for i := range waits {
			waits[i] = processlog.Never
		}
		select {
		case q.asked <- struct{}{}:
		default:
		}
	}
	return waits, lost, err
}

// Failure: F44
func TestIdleProcessIsToldOfALossByTheOneThatRebuilds(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := rarely(w)
	first := make(chan struct{}, 10)
	cfg.Observer.Reconciled = func(observe.ReconciledEvent) { first <- struct{}{} }
	store, err := compensator.OpenStore(t.Context(), w.DB, compensator.DefaultTable)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	blind := &blindLater{Store: store}
	cfg.DB, cfg.Store = nil, blind
	busy := w.New(cfg)
	_, gate := harness.HandleGated(t, busy, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: 1, Timeout: 2 * harness.Timeout}, nil)
	gate.OpenAtEnd(t)
	w.Run(busy)
	w.Wait(first, "the first round of the process that is busy")
	w.WaitComplete("close_order")
	w.RecordDelayed(w.New(w.QuickConfig()), 50*time.Millisecond)
	gate.Await(t) // This process has no free slot, and must check its queue nevertheless.

	queue, err := redisqueue.Open(w.Redis, w.Name)
	require.NoError(t, err)
	calm := &farsighted{Queue: queue, asked: make(chan struct{}, 1)}
	cfg.DB, cfg.Store, cfg.Redis, cfg.Queue = w.DB, nil, nil, calm
	idle := w.New(cfg)
	_, ran := harness.HandleCounted(t, idle, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(idle)
	w.Wait(first, "the first round of the idle one")
	calm.calm.Store(true)
	w.Wait(calm.asked, "it knows that nothing is due")
	blind.blind.Store(true)
	ids := w.InsertDue("close_order", 1000, 10) // No process enqueues these entries.
	evict(w, "close_order")
	for _, id := range ids {
		w.WaitState(id, compensator.Succeeded)
	}
	assert.Equal(t, len(ids), ran.Total())
	gate.Open()
}

// oneOnly's instance checks only once, at its start, whether the queue has lost entries.
func oneOnly(t *testing.T, store processlog.Store, queue *compensatortest.MemoryQueue, ran *atomic.Int64) *compensator.Compensator {
	c, err := compensator.New(t.Context(), compensator.Config{
		Store: store, Queue: queue.Client(), ReconcileInterval: 24 * time.Hour, Grace: 24 * time.Hour, Horizon: 200 * time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	_, err = compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, harness.Order) error {
		ran.Add(1)
		return nil
	}, nil)
	require.NoError(t, err)
	stop := compensatortest.Run(t, c)
	t.Cleanup(func() {
		stop()
		assert.NoError(t, c.Close())
	})
	return c
}

// Failure: F44
func TestTypeIsWholeOnlyOnceAllOfItIsEnqueued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, queue := compensatortest.NewMemoryStore(), compensatortest.NewMemoryQueue()
		var ran atomic.Int64
		// A round of the reconciler enqueues only entries that are due within 96 hours. So after the loss of the type,
		// only a rebuild enqueues this entry.
		harness.RecordLater(t, oneOnly(t, blindStore{store}, queue, &ran), 100*time.Hour)
		time.Sleep(time.Minute) // By now the process has done the work of its start.
		queue.LoseType("close_order")
		time.Sleep(time.Minute)
		require.Empty(t, queue.Members())
		oneOnly(t, store, queue, &ran)
		time.Sleep(time.Hour) // During this time the blind process tries to rebuild the type often.
		require.Len(t, queue.Members(), 1)
	})
}

func TestEntriesOfALostTypeRunAlthoughNobodyRebuildsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, queue := compensatortest.NewMemoryStore(), compensatortest.NewMemoryQueue()
		var ran atomic.Int64
		harness.RecordLater(t, oneOnly(t, store, queue, &ran), 2*time.Minute)
		time.Sleep(time.Minute) // By now the process has done the work of its start.
		queue.LoseType("close_order")
		mine, err := queue.Client().Rebuild(t.Context(), []string{"close_order"}, processlog.Token{1}, time.Hour)
		require.NoError(t, err)
		require.Len(t, mine, 1)
		time.Sleep(2 * time.Minute)
		require.EqualValues(t, 1, ran.Load())
		require.Empty(t, queue.Members())
	})
}
