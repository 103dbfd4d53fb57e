package order

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

var errNoRoute = errors.New("no route")

type behindBreaker struct {
	c      *compensator.Compensator
	orders *compensator.Type[harness.Order]
	down   atomic.Bool
	opened chan observe.OpenBreaker
}

func newBehindBreaker(t *testing.T, w *harness.World, cfg compensator.Config, seen *watch, pause time.Duration) *behindBreaker {
	p := &behindBreaker{opened: make(chan observe.OpenBreaker, 1000)}
	p.down.Store(true)
	cfg.Observer.BreakerOpened = func(open observe.OpenBreaker) { p.opened <- open }
	p.c = w.New(cfg)
	p.orders = serial(t, p.c, seen, compensator.HandlerConfig[harness.Order]{Concurrency: 4, Breaker: compensator.Breaker{Of: 3, Pause: pause}}, func(context.Context, *compensator.Entry) error {
		if p.down.Load() {
			return compensator.Unavailable(errNoRoute)
		}
		return nil
	})
	return p
}

// requireLines requires that every entry has succeeded and that the entries of each key ran in id order.
func requireLines(t *testing.T, w *harness.World, seen *watch, want map[string][]compensator.EntryID) {
	t.Helper()
	w.WaitAllEnded()
	for key, ids := range want {
		require.Equal(t, ids, seen.order(key))
	}
	require.Zero(t, w.Count("common_process_log WHERE state<>1 OR process_count>0 OR delivery_count>0"), "a wait counts as nothing")
	w.Eventually(func() bool { return w.Count("common_process_log_turns") == 0 }, "no positions are left")
}

func fill(w *harness.World, cfg compensator.Config, types ...*compensator.Type[harness.Order]) map[string][]compensator.EntryID {
	want := make(map[string][]compensator.EntryID)
	for i := range 20 {
		key := strconv.Itoa(i % 5)
		want[key] = append(want[key], w.RecordThrough(cfg.DB, types[i%len(types)], i, withKey(key)))
	}
	return want
}

// Each breaker probes with the entry that is longest overdue.
// Failure: F113
func TestOpenBreakersLeaveKeysInTheirOrder(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		seen := newWatch(t)
		a, b := newBehindBreaker(t, w, cfg, seen, 50*time.Millisecond), newBehindBreaker(t, w, cfg, seen, 50*time.Millisecond)
		w.Run(a.c)
		w.Run(b.c)
		want := fill(w, cfg, a.orders, b.orders)
		open := harness.Receive(t, a.opened)
		for open.Probes < 2 { // wait until two probes have failed
			open = harness.Receive(t, a.opened)
		}
		a.down.Store(false)
		b.down.Store(false)
		requireLines(t, w, seen, want)
	})
}

// Failure: F113
func TestKeysThatAnOpenBreakerLeavesAloneAreWorkedOffInOrderElsewhere(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		seen := newWatch(t)
		cut, sound := newBehindBreaker(t, w, cfg, seen, time.Hour), newBehindBreaker(t, w, cfg, seen, time.Hour)
		sound.down.Store(false)
		w.Run(cut.c)
		want := fill(w, cfg, cut.orders)
		harness.Receive(t, cut.opened)
		w.Run(sound.c)
		for key, ids := range fill(w, cfg, cut.orders, sound.orders) {
			want[key] = append(want[key], ids...)
		}
		requireLines(t, w, seen, want)
		require.Len(t, cut.c.Health(t.Context()).OpenBreakers, 1)
	})
}
