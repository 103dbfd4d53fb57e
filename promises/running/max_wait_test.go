package running

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

// Failure: F60
func TestWaitsCountOnceMaxWaitIsOver(t *testing.T) {
	t.Parallel()
	closed := errors.New("the bank is closed")
	const enough = 4 // This many calls would exhaust the entry if waits counted.
	for name, wait := range map[string]func() error{
		"Snooze":      func() error { return compensator.Snooze(100 * time.Millisecond) },
		"Unavailable": func() error { return compensator.RetryAfter(100*time.Millisecond, compensator.Unavailable(closed)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			c := w.New(w.QuickConfig())
			type waiting struct {
				entries *compensator.Type[harness.Order]
				called  chan int // ProcessCount at each call
				bounded bool
			}
			types := make(map[string]waiting)
			add := func(name string, bound time.Duration) {
				it := waiting{called: make(chan int, 100), bounded: bound == 300*time.Millisecond}
				cfg := compensator.HandlerConfig[harness.Order]{MaxWait: bound, MaxAttempts: 2, MaxCompensateAttempts: 2, Retry: compensator.Fixed(100 * time.Millisecond)}
				call := func(e *compensator.Entry) error {
					select {
					case it.called <- e.ProcessCount:
					default: // The test has already noted enough calls.
					}
					return wait()
				}
				var err error
				switch kind, _, _ := strings.Cut(name, " "); kind {
				case "plain":
					cfg.Compensate = func(context.Context, *compensator.Entry, harness.Order) error { return wait() }
					it.entries, err = compensator.Handle(t.Context(), c, name, func(_ context.Context, e *compensator.Entry, _ harness.Order) error { return call(e) }, &cfg)
				case "transactional":
					it.entries, err = compensator.HandleTx(t.Context(), c, name, func(_ context.Context, _ *compensator.ScopedTx, e *compensator.Entry, _ harness.Order) error {
						return call(e)
					}, &cfg)
				case "batch":
					it.entries, err = compensator.HandleBatch(t.Context(), c, name, func(_ context.Context, items []compensator.Item[harness.Order]) []error {
						return []error{call(items[0].Entry)}
					}, &compensator.BatchConfig[harness.Order]{BatchSize: 1, MaxWait: bound, MaxAttempts: 2, Retry: compensator.Fixed(100 * time.Millisecond)})
				}
				require.NoError(t, err)
				types[name] = it
			}
			for _, kind := range []string{"plain", "transactional", "batch"} {
				add(kind, 300*time.Millisecond)
				add(kind+" patient", time.Hour)
				add(kind+" for ever", 0)
			}
			w.Run(c)
			ids := make(map[string]compensator.EntryID)
			for name, it := range types {
				ids[name] = w.Record(it.entries, 1, compensator.Options{})
			}
			for name, it := range types {
				if !it.bounded {
					for range enough {
						require.Zero(t, harness.Receive(t, it.called), "%s: a wait counts", name)
					}
					continue
				}
				w.Eventually(func() bool { return w.Entry(c, ids[name]).State == compensator.Dead }, "%s ends", name)
				e := w.Entry(c, ids[name])
				require.Equal(t, 2, e.ProcessCount, name)
				require.Equal(t, compensator.EndedByExhausted, e.EndedBy, name)
				require.Contains(t, e.LastError, "waits for longer than MaxWait, 300ms: ", name)
				for _, problem := range c.Health(t.Context()).Problems {
					require.NotContains(t, problem.What, "condition", "the database is well")
				}
				if name == "plain" {
					require.Equal(t, 2, e.CompensateCount, "its compensation's waits count, too")
				}
			}
		})
	}
}
