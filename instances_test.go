package compensator_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

func TestManyInstancesRunEachEntryOnce(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		var ran calls
		var types []*compensator.Type[order]
		for range 5 {
			c := w.new(cfg)
			orders, _ := numbered(t, c, "close_order", compensator.TypeConfig{Concurrency: 10}, func(e *compensator.Entry, _ int) error {
				ran.add(e.ID)
				return nil
			})
			types = append(types, orders)
			w.run(c)
		}
		w.backlog("close_order", 200)
		for i := range 200 {
			putThrough(w, cfg.DB, types[i%len(types)], i, compensator.Options{Delay: time.Duration(i%5) * 50 * time.Millisecond})
		}
		w.waitAllEnded()
		require.Equal(t, 400, w.ended(compensator.Succeeded, 0))
		require.Equal(t, 400, ran.total())
		require.Equal(t, 400, w.count("common_process_log WHERE delivery_count=0"))
	})
}

func TestOneInstanceAnnouncesForAll(t *testing.T) {
	w := newWorld(t).withRedis()
	var led, followed atomic.Int64
	instance := func(rebuilt *atomic.Int64, rounds chan struct{}) {
		cfg := w.quick()
		cfg.Observer.Reconciled = func(e compensator.ReconciledEvent) {
			if e.Rebuilt || e.Announced > 0 {
				rebuilt.Add(1)
			}
			rounds <- struct{}{}
		}
		c := w.new(cfg)
		_, _ = numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
		w.run(c)
	}
	orders, err := compensator.Declare[order](w.new(w.quick()), "close_order", compensator.TypeConfig{})
	require.NoError(t, err)
	put(w, orders, 1, compensator.Options{Delay: time.Minute})
	leader, follower := make(chan struct{}, 1000), make(chan struct{}, 1000)
	instance(&led, leader)
	next(t, leader)
	require.Positive(t, led.Load(), "the first rebuilds")
	instance(&followed, follower)
	next(t, follower) // at its start each instance makes sure of what it recorded before it died
	after := followed.Load()
	for range 6 {
		next(t, follower)
	}
	require.Equal(t, after, followed.Load(), "the others leave that to it")
}

func TestEntriesAreFoundByPollingAlthoughTheQueueIsUp(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	cfg.DB = w.open(plain(w.DSN))
	var polled atomic.Int64
	cfg.Observer.Reconciled = func(e compensator.ReconciledEvent) { polled.Add(int64(e.Polled)) }
	c := w.new(cfg)
	_, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
	w.run(c)
	n := 0
	w.eventually(func() bool {
		n++
		w.insertDue("close_order", n, 1) // nobody tells the queue
		return polled.Load() > 0
	}, "the way without a queue is walked every day")
	w.waitAllEnded()
	require.Equal(t, n, ran.total())
	require.Equal(t, n, w.ended(compensator.Succeeded, 0))
}
