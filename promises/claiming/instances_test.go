package claiming

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

// Failure: F83
func TestManyInstancesRunEachEntryOnce(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		var ran harness.Calls
		var types []*compensator.Type[harness.Order]
		for range 5 {
			c := w.New(cfg)
			orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: 10}, func(e *compensator.Entry, _ int) error {
				ran.Add(e.ID)
				return nil
			})
			types = append(types, orders)
			w.Run(c)
		}
		w.Backlog("close_order", 200)
		for i := range 200 {
			w.RecordThrough(cfg.DB, types[i%len(types)], i, compensator.Options{Delay: time.Duration(i%5) * 50 * time.Millisecond})
		}
		w.WaitAllEnded()
		require.Equal(t, 400, w.CountEnded(compensator.Succeeded, 0))
		require.Equal(t, 400, ran.Total())
		require.Equal(t, 400, w.Count("common_process_log WHERE delivery_count=0"))
	})
}

// Failure: F84
func TestOneInstanceEnqueuesForAll(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	var led, followed atomic.Int64
	instance := func(rebuilt *atomic.Int64, rounds chan struct{}) {
		cfg := w.QuickConfig()
		cfg.Observer.Reconciled = func(e observe.ReconciledEvent) {
			if e.Rebuilt || e.Enqueued > 0 {
				rebuilt.Add(1)
			}
			rounds <- struct{}{}
		}
		c := w.New(cfg)
		_, _ = harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(c)
	}
	orders, err := compensator.Declare[harness.Order](t.Context(), w.New(w.QuickConfig()), "close_order", nil)
	require.NoError(t, err)
	w.Record(orders, 1, compensator.Options{Delay: time.Minute})
	leader, follower := make(chan struct{}, 1000), make(chan struct{}, 1000)
	instance(&led, leader)
	harness.Receive(t, leader)
	require.Positive(t, led.Load(), "the first rebuilds")
	instance(&followed, follower)
	harness.Receive(t, follower) // At its start, each instance checks the entries that it recorded before it stopped.
	after := followed.Load()
	for range 6 {
		harness.Receive(t, follower)
	}
	require.Equal(t, after, followed.Load(), "the others leave that to it")
}

// Failure: F84
func TestEntriesAreFoundByPollingAlthoughTheQueueIsUp(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	cfg.DB = w.Open(harness.PlainPool(w.DSN))
	var polled atomic.Int64
	cfg.Observer.Reconciled = func(e observe.ReconciledEvent) { polled.Add(int64(e.Polled)) }
	c := w.New(cfg)
	_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	n := 0
	w.Eventually(func() bool {
		n++
		w.InsertDue("close_order", n, 1) // Insert the entries without a notification to the queue.
		return polled.Load() > 0
	}, "the way without a queue is walked every day")
	w.WaitAllEnded()
	require.Equal(t, n, ran.Total())
	require.Equal(t, n, w.CountEnded(compensator.Succeeded, 0))
}
