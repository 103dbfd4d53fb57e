package running

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

// Failure: F77
func TestEntriesThatAnOpenBreakerLeavesAloneAreRunByAnotherProcess(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		opened := make(chan observe.OpenBreaker, 1)
		cut := cfg
		cut.Observer.BreakerOpened = func(open observe.OpenBreaker) { opened <- open }
		here, there := w.New(cut), w.New(cfg)
		var down atomic.Bool
		var late atomic.Int64
		refunds, err := compensator.Handle(t.Context(), here, "refund", func(context.Context, *compensator.Entry, harness.Order) error {
			if down.Load() {
				late.Add(1)
			}
			return compensator.Unavailable(errNoRoute)
		}, &compensator.HandlerConfig[harness.Order]{Concurrency: 1, Breaker: compensator.Breaker{Of: 4, Pause: time.Hour}})
		require.NoError(t, err)
		_, ran := harness.HandleCounted(t, there, "refund", compensator.HandlerConfig[harness.Order]{Breaker: compensator.Breaker{Of: 4}}, nil)
		w.Run(here)
		w.RecordMany(here, refunds, 30, compensator.Options{})
		open := harness.Receive(t, opened)
		down.Store(true)
		for i := range 10 {
			w.RecordThrough(cfg.DB, refunds, i, compensator.Options{})
		}
		health := here.Health(t.Context())
		require.NoError(t, health.Ready(), "it can do its part of all else, and requests are not the backlog's to refuse")
		require.Len(t, health.OpenBreakers, 1)
		assert.Equal(t, open, health.OpenBreakers[0])
		told, err := json.Marshal(health)
		require.NoError(t, err)
		assert.Contains(t, string(told), `"open_breakers":[{"type":"refund","error":"no route"`)
		w.Run(there)
		w.WaitAllEnded()
		require.Equal(t, 40, w.CountEnded(compensator.Succeeded, 0))
		require.Equal(t, 40, ran.Total())
		require.Equal(t, 40, w.Count("common_process_log WHERE delivery_count=0"))
		require.Zero(t, late.Load(), "nothing ran while it was open")
		require.Empty(t, there.Health(t.Context()).OpenBreakers, "it is each process's own")
	})
}

// Failure: F77
func TestBreakerClosesByItselfWhenTheServiceIsBack(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		opened, closed := make(chan observe.OpenBreaker, 1000), make(chan observe.OpenBreaker, 1000)
		cfg.Observer.BreakerOpened = func(open observe.OpenBreaker) { opened <- open }
		cfg.Observer.BreakerClosed = func(open observe.OpenBreaker) { closed <- open }
		lines := harness.CaptureLog(&cfg)
		c := w.New(cfg)
		var up atomic.Bool
		var at, probes atomic.Int64
		refunds, err := compensator.Handle(t.Context(), c, "refund", func(context.Context, *compensator.Entry, harness.Order) error {
			if up.Load() {
				return nil
			}
			if len(opened) > 0 {
				probes.Add(1)
				assert.EqualValues(t, 1, at.Add(1), "one at a time")
				defer at.Add(-1)
			}
			return compensator.Unavailable(errNoRoute)
		}, &compensator.HandlerConfig[harness.Order]{Concurrency: 1, Retry: compensator.Fixed(100 * time.Millisecond), Breaker: compensator.Breaker{Of: 3, Pause: 20 * time.Millisecond}})
		require.NoError(t, err)
		w.Run(c)
		w.RecordMany(c, refunds, 30, compensator.Options{})
		w.Eventually(func() bool { return len(opened) >= 4 }, "three probes fail")
		up.Store(true)
		open := harness.Receive(t, closed)
		require.LessOrEqual(t, probes.Load(), int64(open.Probes), "each was a probe")
		lines.Contains(w, "level=WARN", "the breaker of refund has opened")
		lines.Contains(w, "level=INFO", "a breaker has closed", "type=refund") // Without this line, a reader of the log would believe that the dependency is still down.
		w.WaitAllEnded()
		require.Equal(t, 30, w.CountEnded(compensator.Succeeded, 0))
		require.Empty(t, c.Health(t.Context()).OpenBreakers)
	})
}

// Failure: F78
func TestDatabasesConditionOpensNoBreaker(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.Observer.BreakerOpened = func(open observe.OpenBreaker) { assert.Fail(t, "it has opened", "%v", open) }
	c := w.New(cfg)
	orders, tries, unlock := lockedOut(t, w, c, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1000, Retry: compensator.Fixed(0), Breaker: compensator.Breaker{Of: 1, Share: 0.1}})
	w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	w.Eventually(func() bool { return tries.Load() >= 3 }, "three attempts have met the lock")
	unlock()
	w.WaitState(id, compensator.Succeeded)
}
