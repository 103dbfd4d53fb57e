package running

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

type hostile struct {
	text       string
	unwrap     func() error
	as         func(any) bool
	is         func(error) bool
	stringless bool
}

func (h *hostile) Error() string {
	if h.stringless {
		panic("no text")
	}
	return h.text // This panics on a nil pointer.
}

func (h *hostile) Unwrap() error {
	if h.unwrap == nil {
		return nil
	}
	return h.unwrap()
}

func (h *hostile) As(target any) bool { return h.as != nil && h.as(target) }

func (h *hostile) Is(target error) bool { return h.is != nil && h.is(target) }

// forest is an error whose Unwrap returns the error itself.
type forest struct{}

func (forest) Error() string   { return "forest" }
func (forest) Unwrap() []error { return []error{forest{}, forest{}} }

// undecided is an error type that is comparable, but comparing two values of it panics.
type undecided struct{ of any }

func (undecided) Error() string { return "undecided" }

// bomb is a panic value that panics when it is printed. Printing the value of that second panic panics, too.
type bomb struct{}

func (bomb) String() string { panic(bomb{}) }

// text is a part of LastError by which the test recognizes the error.
func hostileErrors() map[string]struct {
	make func() error
	text string
} {
	type made = struct {
		make func() error
		text string
	}
	loop := &hostile{text: "loop"}
	loop.unwrap = func() error { return loop }
	no := func() { panic("no") }
	return map[string]made{
		"a nil pointer":            {func() error { var h *hostile; return h }, "a nil *running.hostile"},
		"a wrapped nil pointer":    {func() error { var h *hostile; return fmt.Errorf("wrapped: %w", h) }, "wrapped: "},
		"Error panics":             {func() error { return &hostile{stringless: true} }, "whose Error method panicked: no text"},
		"Unwrap panics":            {func() error { return &hostile{text: "shy", unwrap: func() error { no(); return nil }} }, "shy"},
		"As panics":                {func() error { return &hostile{text: "asked", as: func(any) bool { no(); return false }} }, "asked"},
		"Is panics":                {func() error { return &hostile{text: "is it", is: func(error) bool { no(); return false }} }, "is it"},
		"it unwraps to itself":     {func() error { return loop }, "loop"},
		"a tree of itself":         {func() error { return forest{} }, "forest"},
		"it cannot be compared":    {func() error { return undecided{[]int{1}} }, "undecided"},
		"Permanent around one":     {func() error { return compensator.Permanent(&hostile{stringless: true}) }, "whose Error method panicked"},
		"RetryAfter around a loop": {func() error { return compensator.RetryAfter(100*time.Millisecond, loop) }, "loop"},
		"a panic with a bomb":      {func() error { panic(bomb{}) }, "handler panicked"},
		"a panic with an error":    {func() error { panic(&hostile{stringless: true}) }, "handler panicked"},
	}
}

// Failure: F63
func TestErrorWhoseMethodsPanicIsAFailureLikeAnyOther(t *testing.T) {
	t.Parallel()
	for name, bad := range hostileErrors() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			cfg := w.QuickConfig()
			ended := make(chan string, 100)
			cfg.Observer.AttemptEnded = func(e observe.AttemptEvent) {
				if e.Err != nil {
					ended <- e.Err.Error()
				}
			}
			cfg.Logger = slog.New(slog.NewJSONHandler(discard{}, nil))
			c := w.New(cfg)
			kinds := hostileTypes(t, c, bad.make)
			w.Run(c)
			ids := make(map[string]compensator.EntryID)
			for kind, orders := range kinds {
				ids[kind] = w.Record(orders, 1, compensator.Options{})
				w.Record(orders, 2, compensator.Options{}) // These entries may share a batch.
			}
			for kind, id := range ids {
				w.WaitState(id, compensator.Dead)
				e := w.Entry(c, id)
				require.Contains(t, e.LastError, bad.text, kind)
				if kind == "compensation" {
					require.Equal(t, 1, e.CompensateCount, kind)
				} else {
					require.Equal(t, 1, e.ProcessCount, kind)
				}
			}
			for text := ""; !strings.Contains(text, bad.text); {
				text = harness.Receive(t, ended) // An Observer reads the error, too.
			}
			require.NoError(t, c.Health(t.Context()).Ready())
		})
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// Each entry is exhausted after its first attempt.
func hostileTypes(t *testing.T, c *compensator.Compensator, fail func() error) map[string]*compensator.Type[harness.Order] {
	t.Helper()
	once := compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, MaxCompensateAttempts: 1}
	kinds := make(map[string]*compensator.Type[harness.Order])
	add := func(name string, orders *compensator.Type[harness.Order], err error) {
		require.NoError(t, err)
		kinds[name] = orders
	}
	plain := func(context.Context, *compensator.Entry, harness.Order) error { return fail() }
	orders, err := compensator.Handle(t.Context(), c, "plain", plain, &once)
	add("plain", orders, err)
	orders, err = compensator.HandleTx(t.Context(), c, "transactional", func(context.Context, *compensator.ScopedTx, *compensator.Entry, harness.Order) error {
		return fail()
	}, &once)
	add("transactional", orders, err)
	batch := func(_ context.Context, items []compensator.Item[harness.Order]) []error {
		errs := make([]error, len(items))
		for i := range items {
			errs[i] = fail()
		}
		return errs
	}
	orders, err = compensator.HandleBatch(t.Context(), c, "batch", batch, &compensator.BatchConfig[harness.Order]{MaxAttempts: 1, MaxCompensateAttempts: 1})
	add("batch", orders, err)
	undone := once
	undone.Compensate = func(context.Context, *compensator.Entry, harness.Order) error { return fail() }
	orders, err = compensator.Handle(t.Context(), c, "compensation", func(context.Context, *compensator.Entry, harness.Order) error {
		return compensator.Permanent(errors.New("undo it"))
	}, &undone)
	add("compensation", orders, err)
	return kinds
}

// Failure: F63
func TestLookingAtAnErrorWhoseMethodsPanicDoesNotPanic(t *testing.T) {
	t.Parallel()
	for name, bad := range hostileErrors() {
		if name == "a panic with a bomb" || name == "a panic with an error" {
			continue
		}
		assert.NotPanics(t, func() { compensator.VerdictOf(bad.make()) }, name)
	}
	assert.NotPanics(t, func() { _ = (&processlog.PanicError{Value: bomb{}}).Error() })
}

type loud struct{ slog.Handler }

func (loud) Enabled(context.Context, slog.Level) bool  { return true }
func (loud) Handle(context.Context, slog.Record) error { panic(bomb{}) }
func (l loud) WithAttrs([]slog.Attr) slog.Handler      { return l }
func (l loud) WithGroup(string) slog.Handler           { return l }

// Failure: F63
func TestLoggerScheduleAndObserverThatPanicEndNothing(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.Logger = slog.New(loud{})
	cfg.Observer.AttemptEnded = func(observe.AttemptEvent) { panic(bomb{}) }
	cfg.Observer.Settled = func(observe.SettledEvent) { panic(&hostile{stringless: true}) }
	c := w.New(cfg)
	orders, err := compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, harness.Order) error {
		return errors.New("sold out")
	}, &compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: func(int) time.Duration { panic(bomb{}) }})
	require.NoError(t, err)
	serial, err := compensator.Handle(t.Context(), c, "pay_order", nothing, &compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Serial: func(*compensator.Entry) string { panic(bomb{}) }}})
	require.NoError(t, err)
	w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	w.WaitState(id, compensator.Dead)
	tx := w.Begin(w.DB)
	_, err = serial.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
	var refused *compensator.FieldError
	require.ErrorAs(t, err, &refused)
	require.NoError(t, tx.Rollback())
}
