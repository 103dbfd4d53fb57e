package people

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

// Failure: F85
func TestWhatFailsIsLoggedAndShownInHealth(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		lines := harness.CaptureLog(&cfg)
		c := w.New(cfg)
		orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(c)
		w.Exec("RENAME TABLE common_process_log TO elsewhere")
		defer func() { _, _ = w.DB.Exec("RENAME TABLE elsewhere TO common_process_log") }()
		lines.Contains(w, "level=WARN", "could not be searched", "1146")
		var problem observe.Problem
		w.Eventually(func() bool {
			for _, problem = range c.Health(t.Context()).Problems {
				if problem.Times > 3 {
					return true
				}
			}
			return false
		}, "it has failed several times")
		assert.Contains(t, problem.Error, "1146")
		assert.False(t, problem.Since.IsZero())
		for len(lines) > 0 {
			line := <-lines
			assert.NotContains(t, line, "could not be searched", "one log line a minute")
		}
		w.Exec("RENAME TABLE elsewhere TO common_process_log")
		w.WaitState(w.RecordThrough(w.DB, orders, 1, compensator.Options{}), compensator.Succeeded)
		w.Eventually(func() bool { return len(c.Health(t.Context()).Problems) == 0 }, "what works is no trouble any more")
	})
}

// The handler's context ends, so the call to the dependency fails.
func TestAttemptThatIsToldToStopBlamesNothing(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	waiting, dropped := make(chan struct{}), make(chan struct{})
	cfg.Observer.OutcomeDropped = func(observe.SettledEvent) { close(dropped) }
	c := w.New(cfg)
	orders, err := compensator.Handle(t.Context(), c, "close_order", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
		close(waiting)
		<-ctx.Done()
		return compensator.Unavailable(context.Cause(ctx))
	}, &compensator.HandlerConfig[harness.Order]{Concurrency: 1})
	require.NoError(t, err)
	w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	harness.Receive(t, waiting)
	_, err = c.Complete(t.Context(), id)
	require.NoError(t, err)
	harness.Receive(t, dropped)
	assert.Empty(t, c.Health(t.Context()).Problems)
}

// Failure: F85
func TestWhatMakesAttemptsUnavailableIsLoggedAndShownInHealth(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	lines := harness.CaptureLog(&cfg)
	c := w.New(cfg)
	down := make(chan struct{})
	orders, err := compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, harness.Order) error {
		select {
		case <-down:
			return nil
		default:
			return compensator.Unavailable(fmt.Errorf("the bank does not answer"))
		}
	}, &compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(time.Millisecond)})
	require.NoError(t, err)
	w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	lines.Contains(w, "level=WARN", "close_order", "the bank does not answer")
	w.Eventually(func() bool {
		problems := c.Health(t.Context()).Problems
		return len(problems) == 1 && problems[0].BusinessType == "close_order" && problems[0].Error == "the bank does not answer"
	}, "Health says so")
	close(down)
	require.NoError(t, c.Reschedule(t.Context(), id, 0))
	w.WaitState(id, compensator.Succeeded)
	w.Eventually(func() bool { return len(c.Health(t.Context()).Problems) == 0 }, "it is over")
}
