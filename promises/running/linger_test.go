package running

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Each call waits until the expected number of calls is running.
type calls struct {
	mu      sync.Mutex // guards the fields below it
	now     int
	most    int
	sizes   []int
	reached chan struct{}
	want    int
}

func newCalls(want int) *calls { return &calls{want: want, reached: make(chan struct{})} }

func (c *calls) enter(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sizes = append(c.sizes, n)
	c.now++
	if c.most = max(c.most, c.now); c.now == c.want {
		select {
		case <-c.reached:
		default:
			close(c.reached)
		}
	}
}

func (c *calls) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now--
}

// handler returns some time after the expected number of calls is running, so that the test would notice an additional
// call.
func (c *calls) handler(ctx context.Context, items []compensator.Item[harness.Order]) []error {
	c.enter(len(items))
	defer c.leave()
	select {
	case <-c.reached:
		<-time.After(10 * time.Millisecond)
	case <-ctx.Done():
	}
	return nil
}

// Failure: F107
func TestConcurrencyCountsBatchesAndCapsNone(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		for _, atOnce := range []int{1, 3} {
			name := fmt.Sprint("close_order_", atOnce)
			c, seen := w.New(cfg), newCalls(atOnce)
			_, err := compensator.HandleBatch(t.Context(), c, name, seen.handler, &compensator.BatchConfig[harness.Order]{BatchSize: 20, Concurrency: atOnce})
			require.NoError(t, err)
			w.Backlog(name, 400)
			stop := w.Run(c)
			w.WaitAllEnded()
			require.NoError(t, stop())
			require.Equal(t, atOnce, seen.most, "as many batches at once as it allows, and no more")
			require.Equal(t, 20, slices.Max(seen.sizes))
			require.LessOrEqual(t, len(seen.sizes), 400/10, "a backlog is worked off in batches: %v", seen.sizes)
		}
	})
}

// Failure: F107
func TestEntriesOfOneTransactionShareABatch(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c, seen := w.New(w.QuickConfig()), newCalls(1)
	orders, err := compensator.HandleBatch(t.Context(), c, "close_order", seen.handler, &compensator.BatchConfig[harness.Order]{Concurrency: 1})
	require.NoError(t, err)
	w.Run(c)
	w.Record(orders, 0, compensator.Options{})
	w.WaitAllEnded() // The first entry runs alone.
	w.RecordMany(c, orders, 100, compensator.Options{})
	w.WaitAllEnded()
	require.Equal(t, []int{1, 100}, seen.sizes)
}

type bubbled struct {
	*compensator.Compensator
	store *compensatortest.MemoryStore
	began time.Time
	hangs time.Duration // duration of the first call (0: no delay); that call ignores its context

	mu    sync.Mutex // guards calls
	calls []string   // start and number of entries of each call
}

func inBubble(t *testing.T, cfg compensator.BatchConfig[harness.Order], test func(t *testing.T, b *bubbled)) {
	b := &bubbled{}
	harness.InBubble(t, func(c *compensator.Compensator) {
		_, err := compensator.HandleBatch(t.Context(), c, "close_order", b.handle, &cfg)
		require.NoError(t, err)
	}, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore) {
		b.Compensator, b.store, b.began = c, store, time.Now()
		test(t, b)
	})
}

func (b *bubbled) handle(_ context.Context, items []compensator.Item[harness.Order]) []error {
	b.mu.Lock()
	b.calls = append(b.calls, fmt.Sprintf("%d after %v", len(items), time.Since(b.began).Truncate(100*time.Millisecond)))
	first := len(b.calls) == 1
	b.mu.Unlock()
	if first {
		time.Sleep(b.hangs)
	}
	return nil
}

// record waits for the duration in the parameter after. Then it records one entry.
func (b *bubbled) record(t *testing.T, after, delay time.Duration) {
	t.Helper()
	<-time.After(after)
	harness.RecordIn(t, b.Compensator, b.store, compensator.NewEntry{BusinessType: "close_order", Content: []byte(`{}`), Options: compensator.Options{Delay: delay}})
}

func (b *bubbled) seen() []string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.calls)
}

// Failure: F107
func TestEntriesRecordedApartShareABatch(t *testing.T) {
	inBubble(t, compensator.BatchConfig[harness.Order]{BatchWait: 5 * time.Second}, func(t *testing.T, b *bubbled) {
		for range 40 {
			b.record(t, 100*time.Millisecond, 0)
		}
		<-time.After(10 * time.Second)
		require.Equal(t, []string{"40 after 5.1s"}, b.seen(), "the first was recorded after 100 ms, and waits for 5 s")
		b.record(t, 0, 0)
		<-time.After(10 * time.Second)
		require.Equal(t, []string{"40 after 5.1s", "1 after 19s"}, b.seen(), "an entry without others waits no longer")
	})
}

// Failure: F107
func TestDelayedEntryWaitsForOthersFromItsMoment(t *testing.T) {
	inBubble(t, compensator.BatchConfig[harness.Order]{BatchWait: 2 * time.Second}, func(t *testing.T, b *bubbled) {
		b.record(t, 0, 30*time.Second)
		b.record(t, 0, 31*time.Second)
		b.record(t, 0, 33*time.Second)
		<-time.After(time.Minute)
		require.Equal(t, []string{"2 after 32s", "1 after 35s"}, b.seen())
	})
}

// Failure: F107
func TestFullBatchDoesNotWait(t *testing.T) {
	inBubble(t, compensator.BatchConfig[harness.Order]{BatchWait: 20 * time.Second, BatchSize: 5, Concurrency: 1}, func(t *testing.T, b *bubbled) {
		// Wait until the first round of the reconciler is over. During the records below, the round would count some of
		// these entries a second time, and a batch would seem to be full too early.
		<-time.After(500 * time.Millisecond)
		for range 7 {
			b.record(t, 10*time.Millisecond, 0)
		}
		<-time.After(30 * time.Second)
		require.Equal(t, []string{"5 after 500ms", "2 after 20.5s"}, b.seen(), "entries behind a full batch wait for others from their own start, and no longer")
	})
}

// The database shows the entries of the stuck batch as due, because their leases have ended.
// Failure: F107
func TestBatchThatHangsIsNotTakenForOneThatIsFull(t *testing.T) {
	cfg := compensator.BatchConfig[harness.Order]{BatchWait: 30 * time.Second, BatchSize: 3, Concurrency: 2, Timeout: 10 * time.Second, Lease: time.Minute}
	inBubble(t, cfg, func(t *testing.T, b *bubbled) {
		b.hangs = 3 * time.Minute
		for range 3 {
			b.record(t, 0, 0)
		}
		b.record(t, 70*time.Second, 0)
		<-time.After(15 * time.Second)
		require.Len(t, b.seen(), 1, "it waits for others")
		<-time.After(5 * time.Minute)
		require.Len(t, b.seen(), 2)
	})
}

// Failure: F107
func TestStartOfAProcessEndsNoWait(t *testing.T) {
	const wait = 20 * time.Second
	for _, of := range []struct {
		name    string
		entries int
		before  time.Duration // time between recording and the start of Run
		want    []string      // expected calls; times count from the start of Run
	}{
		{"recorded as it begins", 2, 0, []string{"2 after 20s"}},
		{"it has waited", 2, 8 * time.Second, []string{"2 after 12s"}},
		{"overdue", 2, time.Minute, []string{"2 after 0s"}},
		{"enough for a batch", 5, time.Second, []string{"5 after 0s"}},
	} {
		t.Run(of.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bubbled{store: compensatortest.NewMemoryStore()}
				var err error
				b.Compensator, err = compensator.New(t.Context(), compensator.Config{Store: b.store, Queue: compensatortest.NewMemoryQueue().Client(), Logger: slog.New(slog.DiscardHandler)})
				require.NoError(t, err)
				_, err = compensator.HandleBatch(t.Context(), b.Compensator, "close_order", b.handle, &compensator.BatchConfig[harness.Order]{BatchWait: wait, BatchSize: 5})
				require.NoError(t, err)
				stop := compensatortest.Run(t, b.Compensator)
				<-time.After(time.Minute) // By now the queue holds all entries.
				stop()
				for range of.entries {
					b.record(t, 0, 0)
				}
				<-time.After(of.before)
				b.began = time.Now()
				stop = compensatortest.Run(t, b.Compensator)
				<-time.After(time.Minute)
				require.Equal(t, of.want, b.seen())
				stop()
				require.NoError(t, b.Close())
			})
		})
	}
}

func TestStartOfAProcessPutsNoCompensationOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, Queue: compensatortest.NewMemoryQueue().Client(), Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		began, undone := time.Now(), make(chan time.Duration, 1)
		_, err = compensator.HandleBatch(t.Context(), c, "close_order", func(context.Context, []compensator.Item[harness.Order]) []error {
			return []error{compensator.Permanent(errors.New("no such order"))}
		}, &compensator.BatchConfig[harness.Order]{BatchWait: 20 * time.Second, Compensate: func(context.Context, *compensator.Entry, harness.Order) error {
			if time.Since(began) < 10*time.Minute {
				return compensator.Unavailable(errors.New("the bank is closed"))
			}
			undone <- time.Since(began)
			return nil
		}})
		require.NoError(t, err)
		stop := compensatortest.Run(t, c)
		harness.RecordIn(t, c, store, compensator.NewEntry{BusinessType: "close_order", Content: []byte(`{}`)})
		<-time.After(time.Minute)
		stop()
		require.Equal(t, processlog.Compensating, store.Rows()[0].State)
		<-time.After(time.Hour)
		began = time.Now().Add(-time.Hour)
		stop = compensatortest.Run(t, c)
		require.Equal(t, time.Hour, (<-undone).Truncate(100*time.Millisecond))
		stop()
		require.NoError(t, c.Close())
	})
}

func TestBatchWaitOfNothingWaitsForNobody(t *testing.T) {
	inBubble(t, compensator.BatchConfig[harness.Order]{}, func(t *testing.T, b *bubbled) {
		for range 3 {
			b.record(t, time.Second, 0)
		}
		require.Equal(t, []string{"1 after 1s", "1 after 2s", "1 after 3s"}, b.seen())
	})
}

// The queue does not tell this process how many entries other processes have recorded.
// Failure: F107
func TestFullBatchDoesNotWaitWhoeverHasRecordedIt(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg.Lease = time.Hour
		recorder, worker := w.New(cfg), w.New(cfg)
		orders, err := compensator.Declare[harness.Order](t.Context(), recorder, "close_order", nil)
		require.NoError(t, err)
		var seen batches
		_, err = compensator.HandleBatch(t.Context(), worker, "close_order", func(_ context.Context, items []compensator.Item[harness.Order]) []error {
			seen.add(items)
			return nil
		}, &compensator.BatchConfig[harness.Order]{BatchSize: 10, BatchWait: time.Hour})
		require.NoError(t, err)
		w.Run(worker)
		for i := range 20 {
			w.Record(orders, i, compensator.Options{})
		}
		w.Eventually(func() bool { return seen.largest() > 1 }, "what is enough for a batch does not wait for an hour")
	})
}

func rounds(cfg *compensator.Config) *atomic.Int64 {
	var n atomic.Int64
	cfg.Observer.Reconciled = func(observe.ReconciledEvent) { n.Add(1) }
	return &n
}

// Failure: F107
func TestNothingIsClaimedWhileItWaitsForOthers(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg.Lease = time.Hour
		made := rounds(&cfg)
		first := w.New(cfg)
		orders, err := compensator.HandleBatch(t.Context(), first, "close_order", func(context.Context, []compensator.Item[harness.Order]) []error {
			assert.Fail(t, "an hour has not passed")
			return nil
		}, &compensator.BatchConfig[harness.Order]{BatchWait: time.Hour})
		require.NoError(t, err)
		stop := w.Run(first)
		w.Eventually(func() bool { return made.Load() > 1 }, "the queue is whole: while it is not, the database is asked, and nothing waits")
		for i := range 3 {
			w.Record(orders, i, compensator.Options{})
		}
		before := made.Load()
		w.Eventually(func() bool { return made.Load() > before+3 }, "they do not count as forgotten")
		require.Equal(t, 3, w.Count("common_process_log WHERE state=0 AND version=0 AND lease_until=0 AND delivery_count=0"), "no lease burns")
		require.NoError(t, stop(), "a stop waits for no batch")
		require.Equal(t, 3, w.Count("common_process_log WHERE state=0 AND version=0 AND delivery_count=0"))

		second := w.New(cfg)
		var seen batches
		_, err = compensator.HandleBatch(t.Context(), second, "close_order", func(_ context.Context, items []compensator.Item[harness.Order]) []error {
			seen.add(items)
			return nil
		}, nil)
		require.NoError(t, err)
		w.Run(second)
		w.WaitAllEnded()
		for i := range 3 {
			require.Len(t, seen.sizesWith(i), 1)
		}
	})
}

// looksFor is the batch size. The test recognizes reads of waiting entries by this limit.
const looksFor = 50

type countedLooks struct {
	*compensatortest.MemoryStore
	looks atomic.Int64
}

func (s *countedLooks) Scan(ctx context.Context, w processlog.Window) ([]processlog.Scheduled, error) {
	if w.Limit == looksFor {
		s.looks.Add(1)
	}
	return s.MemoryStore.Scan(ctx, w)
}

// Failure: F107
func TestLooksForAFullBatchAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countedLooks{MemoryStore: compensatortest.NewMemoryStore()}
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		_, err = compensator.HandleBatch(t.Context(), c, "close_order", func(context.Context, []compensator.Item[harness.Order]) []error { return nil },
			&compensator.BatchConfig[harness.Order]{BatchWait: 8 * time.Second, BatchSize: looksFor})
		require.NoError(t, err)
		stop := compensatortest.Run(t, c)
		<-time.After(time.Minute)
		require.EqualValues(t, 2, store.looks.Load(), "nothing waits: one look, of two statements, as Run begins")
		harness.RecordIn(t, c, store.MemoryStore, compensator.NewEntry{BusinessType: "close_order", Content: []byte(`{}`)})
		<-time.After(time.Minute)
		looks := store.looks.Load() - 2
		require.Positive(t, looks)
		require.LessOrEqual(t, looks, int64(2*(8*4+1)), "four a second at most, of two statements, while it waits")
		stop()
		require.NoError(t, c.Close())
	})
}
