package running

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

// Failure: F63
func TestPanicFailsItsEntryOnly(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c := w.New(w.QuickConfig())
	orders, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, _ *compensator.Entry, o harness.Order) error {
		if o.Number == 4 {
			panic(fmt.Sprintf("order %d is cursed", o.Number))
		}
		return nil
	}, &compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(0)})
	require.NoError(t, err)
	w.Run(c)
	var cursed compensator.EntryID
	for i := range 10 {
		id := w.Record(orders, i, compensator.Options{})
		if i == 4 {
			cursed = id
		}
	}
	w.WaitAllEnded()
	require.Equal(t, 9, w.Count("common_process_log WHERE state=1 AND process_count=0"))
	e := w.Entry(c, cursed)
	require.Equal(t, compensator.Dead, e.State)
	require.Equal(t, compensator.EndedByExhausted, e.EndedBy)
	require.Equal(t, 2, e.ProcessCount, "a panic is a failure like any other")
	require.Contains(t, e.LastError, "order 4 is cursed")
	require.Contains(t, e.LastError, "goroutine ", "the stack is kept")
}

// Failure: F63
func TestGoexitIsAFailureAndFreesItsSlot(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, _ *compensator.Entry, o harness.Order) error {
		if o.Number < 6 {
			runtime.Goexit()
		}
		return nil
	}, &compensator.HandlerConfig[harness.Order]{Concurrency: 2, MaxAttempts: 1})
	require.NoError(t, err)
	w.Run(c)
	// The handler calls Goexit for the first six entries. The type has two slots. If a Goexit kept its slot, the other
	// entries would never run.
	for i := range 40 {
		w.Record(orders, i, compensator.Options{})
	}
	w.WaitAllEnded()
	require.Equal(t, 6, w.Count("common_process_log WHERE state=-2 AND last_error='handler called runtime.Goexit'"))
	require.Equal(t, 34, w.Count("common_process_log WHERE state=1"))
}

// Failure: F63
func TestGoexitInATransactionalHandlerRollsItBack(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, err := compensator.HandleTx(t.Context(), c, "close_order", func(_ context.Context, tx *compensator.ScopedTx, e *compensator.Entry, o harness.Order) error {
		_, err := tx.ExecContext(t.Context(), "INSERT INTO effects (what) VALUES (?)", e.ID.String())
		assert.NoError(t, err)
		if o.Number == 0 {
			runtime.Goexit()
		}
		panic("after the effect")
	}, &compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
	require.NoError(t, err)
	w.Run(c)
	w.Record(orders, 0, compensator.Options{})
	w.Record(orders, 1, compensator.Options{})
	w.WaitAllEnded()
	require.Equal(t, 2, w.Count("common_process_log WHERE state=-2"))
	require.Zero(t, w.Count("effects"))
}

// Failure: F64
func TestSuccessAfterTheTimeoutIsSuccess(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		var ran harness.Calls
		orders, err := compensator.Handle(t.Context(), c, "close_order", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
			ran.Add(e.ID)
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), compensator.ErrTimeout)
			return nil // Return success, because the order is now closed, although late.
		}, &compensator.HandlerConfig[harness.Order]{Timeout: 50 * time.Millisecond})
		require.NoError(t, err)
		w.Run(c)
		id := w.RecordThrough(cfg.DB, orders, 1, compensator.Options{})
		w.WaitState(id, compensator.Succeeded)
		require.Equal(t, 1, ran.Of(id))
		require.Zero(t, w.Entry(c, id).ProcessCount)
	})
}

func TestTimeoutIsAFailureThatSaysSo(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, err := compensator.Handle(t.Context(), c, "close_order", func(ctx context.Context, _ *compensator.Entry, _ harness.Order) error {
		<-ctx.Done()
		return ctx.Err()
	}, &compensator.HandlerConfig[harness.Order]{Timeout: 50 * time.Millisecond, MaxAttempts: 1})
	require.NoError(t, err)
	w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	w.WaitState(id, compensator.Dead)
	require.Contains(t, w.Entry(c, id).LastError, "timed out after 50ms")
}

func nothing(context.Context, *compensator.Entry, harness.Order) error { return nil }

// Failure: F66
func TestRegistrationRefusesWhatCouldNotRun(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	_, err := compensator.Handle(t.Context(), c, "close_order", nothing, nil)
	require.NoError(t, err)
	undoTx := func(context.Context, *compensator.ScopedTx, *compensator.Entry, harness.Order) error { return nil }
	refuse := func(field string, err error) {
		t.Helper()
		var refused *compensator.FieldError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, field, refused.Field)
	}
	with := func(name string, cfg compensator.HandlerConfig[harness.Order]) error {
		_, err := compensator.Handle(t.Context(), c, name, nothing, &cfg)
		return err
	}
	refuse("business type", with("close_order", compensator.HandlerConfig[harness.Order]{}))
	refuse("business type", with("", compensator.HandlerConfig[harness.Order]{}))
	refuse("business type", with(" padded", compensator.HandlerConfig[harness.Order]{}))
	refuse("business type", with("line\nbreak", compensator.HandlerConfig[harness.Order]{}))
	refuse("business type", with(strings.Repeat("x", 65), compensator.HandlerConfig[harness.Order]{}))
	refuse("MaxAttempts", with("a", compensator.HandlerConfig[harness.Order]{MaxAttempts: -1}))
	refuse("MaxCompensateAttempts", with("a", compensator.HandlerConfig[harness.Order]{MaxCompensateAttempts: -1}))
	refuse("Concurrency", with("a", compensator.HandlerConfig[harness.Order]{Concurrency: -1}))
	batch := func(cfg compensator.BatchConfig[harness.Order]) error {
		return harness.ErrOf(compensator.HandleBatch(t.Context(), c, "a", func(context.Context, []compensator.Item[harness.Order]) []error { return nil }, &cfg))
	}
	refuse("BatchSize", batch(compensator.BatchConfig[harness.Order]{BatchSize: -1}))
	refuse("BatchSize", batch(compensator.BatchConfig[harness.Order]{BatchSize: 501}))
	refuse("BatchWait", batch(compensator.BatchConfig[harness.Order]{BatchWait: -1}))
	refuse("BatchWait", batch(compensator.BatchConfig[harness.Order]{BatchWait: 2 * time.Second, Lease: time.Second}))
	refuse("BatchWait", batch(compensator.BatchConfig[harness.Order]{BatchWait: time.Second, BatchSize: 1}))
	refuse("Breaker.Of", with("a", compensator.HandlerConfig[harness.Order]{Breaker: compensator.Breaker{Of: -1}}))
	refuse("Breaker.Of", with("a", compensator.HandlerConfig[harness.Order]{Breaker: compensator.Breaker{Of: 1001}}))
	refuse("Breaker.Share", with("a", compensator.HandlerConfig[harness.Order]{Breaker: compensator.Breaker{Share: -0.1}}))
	refuse("Breaker.Share", with("a", compensator.HandlerConfig[harness.Order]{Breaker: compensator.Breaker{Share: 1.1}}))
	refuse("Breaker.Share", with("a", compensator.HandlerConfig[harness.Order]{Breaker: compensator.Breaker{Share: math.NaN()}}))
	refuse("Breaker.Pause", with("a", compensator.HandlerConfig[harness.Order]{Breaker: compensator.Breaker{Pause: time.Microsecond}}))
	refuse("Timeout", with("a", compensator.HandlerConfig[harness.Order]{Timeout: time.Microsecond}))
	refuse("Lease", with("a", compensator.HandlerConfig[harness.Order]{Lease: 999 * time.Millisecond}))
	refuse("Lease", with("a", compensator.HandlerConfig[harness.Order]{Lease: math.MaxInt64}))
	refuse("Timeout", with("a", compensator.HandlerConfig[harness.Order]{Timeout: math.MaxInt64}))
	refuse("CompensateTx", with("a", compensator.HandlerConfig[harness.Order]{Compensate: nothing, CompensateTx: undoTx}))
	refuse("PassDead", with("a", compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{PassDead: true}}))
	refuse("PassDead", harness.ErrOf(compensator.Declare[harness.Order](t.Context(), c, "a", &compensator.TypeConfig{PassDead: true})))
	_, err = compensator.Handle[harness.Order](t.Context(), c, "a", nil, nil)
	refuse("handler", err)
	_, err = compensator.HandleTx[harness.Order](t.Context(), c, "a", nil, nil)
	refuse("handler", err)
	_, err = compensator.HandleBatch[harness.Order](t.Context(), c, "a", nil, nil)
	refuse("handler", err)

	many := with("", compensator.HandlerConfig[harness.Order]{Timeout: -1, Concurrency: -1})
	for _, field := range []string{"business type", "Timeout", "Concurrency"} {
		require.ErrorContains(t, many, field, "all problems are reported at once")
	}
	require.NoError(t, with("a", compensator.HandlerConfig[harness.Order]{}), "nothing of what was refused was registered")
}

// Failure: F66
func TestRegistrationAfterRunIsRefused(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg, ready := w.HooksOnlyConfig(w.QuickConfig())
	c := w.New(cfg)
	stop := w.Run(c)
	ready()
	_, err := compensator.Handle(t.Context(), c, "close_order", nothing, nil)
	require.ErrorIs(t, err, compensator.ErrRunning)
	require.NoError(t, stop())
	_, err = compensator.Handle(t.Context(), c, "close_order", nothing, nil)
	require.NoError(t, err, "between two Runs")
}

// Failure: F67
func TestVerdictsOfAHandlerAreObeyed(t *testing.T) {
	t.Parallel()
	down := errors.New("downstream is down")
	for name, c := range map[string]struct {
		verdict error
		state   compensator.State
		endedBy compensator.EndedBy
		counted int
		ran     int
	}{
		"permanent":   {compensator.Permanent(down), compensator.Dead, compensator.EndedByPermanent, 1, 1},
		"wrapped":     {fmt.Errorf("close: %w", compensator.Permanent(down)), compensator.Dead, compensator.EndedByPermanent, 1, 1},
		"retry after": {compensator.RetryAfter(time.Millisecond, down), compensator.Succeeded, compensator.EndedByHandler, 1, 2},
		"snooze":      {compensator.Snooze(time.Millisecond), compensator.Succeeded, compensator.EndedByHandler, 0, 2},
		"unavailable": {compensator.Unavailable(down), compensator.Succeeded, compensator.EndedByHandler, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := harness.NewWorld(t).WithRedis()
			comp := w.New(w.QuickConfig())
			orders, ran := harness.HandleCounted(t, comp, "close_order", compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)}, func(e *compensator.Entry, call int) error {
				if call == 1 {
					return c.verdict
				}
				assert.Equal(t, c.counted+1, e.Attempt())
				return nil
			})
			w.Run(comp)
			id := w.Record(orders, 1, compensator.Options{})
			w.WaitState(id, c.state)
			e := w.Entry(comp, id)
			require.Equal(t, c.endedBy, e.EndedBy)
			require.Equal(t, c.counted, e.ProcessCount)
			require.Equal(t, c.ran, ran.Of(id))
		})
	}
}

// Failure: F54
func TestWaitThatAHandlerAsksForIsStoredAsGiven(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	down := errors.New("downstream is down")
	verdicts := []error{
		compensator.Snooze(90 * day), compensator.RetryAfter(90*day, down), compensator.Snooze(100 * 365 * day), compensator.Snooze(math.MaxInt64), down,
	}
	wants := []time.Duration{90 * day, 90 * day, 100 * 365 * day, 100 * 365 * day, 400 * day}
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		orders, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, _ *compensator.Entry, o harness.Order) error { return verdicts[o.Number] },
			&compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(400 * day)})
		require.NoError(t, err)
		w.Run(c)
		for i, want := range wants {
			id := w.Record(orders, i, compensator.Options{})
			w.Eventually(func() bool { e := w.Entry(c, id); return e.DeliveryCount == 0 && e.NextAt.After(e.CreatedAt.Add(day)) }, "its outcome is stored")
			e := w.Entry(c, id)
			require.False(t, e.NextAt.Before(e.CreatedAt.Add(want)), "%v: due %v after it was recorded, want %v", verdicts[i], e.NextAt.Sub(e.CreatedAt), want)
			require.WithinDuration(t, e.UpdatedAt.Add(want), e.NextAt, time.Second)
		}
	})
}

// Failure: F54
func TestSnoozeOfNothingFollowsTheTypesSchedule(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c := w.New(w.QuickConfig())
	orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Retry: compensator.Steps(time.Hour, 2*time.Hour)}, func(*compensator.Entry, int) error { return compensator.Snooze(0) })
	w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	w.Eventually(func() bool { return w.Entry(c, id).NextAt.After(w.Entry(c, id).CreatedAt.Add(time.Minute)) }, "it waits as after a first failure")
	require.Equal(t, 1, ran.Of(id))
	require.Zero(t, w.Entry(c, id).ProcessCount)
}

// Failure: F54
func TestEntrysOwnMaxAttemptsIsItsBudget(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	failing := errors.New("no")
	orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{MaxAttempts: 3, Retry: compensator.Fixed(0)}, func(*compensator.Entry, int) error { return failing })
	w.Run(c)
	for budget, want := range map[int]int{0: 3, 1: 1, 2: 2, 5: 5} {
		id := w.Record(orders, budget, compensator.Options{MaxAttempts: budget})
		w.WaitState(id, compensator.Dead)
		require.Equal(t, want, ran.Of(id), "max attempts %d", budget)
	}
	lowered := w.Record(orders, 9, compensator.Options{MaxAttempts: 9, Delay: time.Hour})
	w.Exec("UPDATE common_process_log SET state=-1, process_count=4, max_process_count=2, next_at=1 WHERE id=?", lowered.Row())
	w.WaitState(lowered, compensator.Dead)
	require.Equal(t, 1, ran.Of(lowered), "one more attempt shows it")
	w.Exec("UPDATE common_process_log SET max_process_count=0 WHERE id=?", lowered.Row()) // Write the invalid row directly.
}

// Failure: F60
func TestContentThatCannotBeDecodedSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, Retry: compensator.Fixed(0)}, nil)
	id := w.InsertDue("close_order", 1, 1)[0]
	w.Exec("UPDATE common_process_log SET content='{\"number\":\"from a newer version\"}' WHERE id=?", id.Row())
	w.Run(c)
	w.Eventually(func() bool { return strings.Contains(w.Entry(c, id).LastError, "decode content") }, "the entry was tried")
	w.Eventually(func() bool { return w.Entry(c, id).Version > 3 }, "and again, without end")
	require.Equal(t, compensator.Pending, w.State(id))
	require.Zero(t, ran.Of(id))
	w.Exec("UPDATE common_process_log SET content='{\"number\":1}' WHERE id=?", id.Row())
	w.WaitState(id, compensator.Succeeded)
}

// Failure: F60
func TestContentThatCannotBeDecodedReachesAPersonAfterMaxWait(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	lines := harness.CaptureLog(&cfg)
	c := w.New(cfg)
	bounded, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(0), MaxWait: time.Millisecond}, nil)
	_, _ = harness.HandleCounted(t, c, "pay_order", compensator.HandlerConfig[harness.Order]{}, nil)
	unread, waits := w.InsertDue("close_order", 1, 1)[0], w.InsertDue("pay_order", 7, 1)[0]
	w.Exec("UPDATE common_process_log SET content='{\"number\":\"from a newer version\"}'")
	w.Run(c)
	w.WaitState(unread, compensator.Dead)
	e := w.Entry(c, unread)
	require.Equal(t, 2, e.ProcessCount)
	require.Contains(t, e.LastError, "waits for longer than MaxWait, 1ms: decode content")
	w.WaitState(w.Record(bounded, 2, compensator.Options{}), compensator.Succeeded)
	w.Eventually(func() bool { return strings.Contains(w.Entry(c, waits).LastError, "decode content") }, "the other one was tried")
	require.Equal(t, compensator.Pending, w.State(waits))
	require.Equal(t, 1, ran.Total())
	lines.Contains(w, "contents cannot be decoded here", "decode content")
	var told []string
	for _, problem := range c.Health(t.Context()).Problems {
		if strings.Contains(problem.What, "contents cannot be decoded here") {
			told = append(told, problem.BusinessType)
		}
	}
	require.ElementsMatch(t, []string{"close_order", "pay_order"}, told, "although an entry of the type has succeeded since")
}

// Failure: F68
func TestHandlerThatCompletesItsOwnEntryHasSettledIt(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		settled := make(chan observe.SettledEvent, 10)
		cfg.Observer.Settled = func(e observe.SettledEvent) { settled <- e }
		cfg.Observer.OutcomeDropped = func(e observe.SettledEvent) { t.Errorf("dropped: %v", e) }
		lines := harness.CaptureLog(&cfg)
		c := w.New(cfg)
		orders, err := compensator.Handle(t.Context(), c, "close_order", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
			tx, err := cfg.DB.BeginTx(context.WithoutCancel(ctx), nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if _, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES ('closed')"); err != nil {
				return err
			}
			if _, err := c.CompleteTx(ctx, tx, e.ID); err != nil {
				return err
			}
			return tx.Commit()
		}, nil)
		require.NoError(t, err)
		w.Run(c)
		id := w.Record(orders, 1, compensator.Options{})
		event := harness.Receive(t, settled)
		require.Equal(t, id, event.ID)
		require.Equal(t, compensator.Succeeded, event.State)
		require.Equal(t, compensator.EndedByComplete, event.EndedBy)
		require.Equal(t, compensator.EndedByComplete, w.Entry(c, id).EndedBy)
		require.Equal(t, 1, w.Count("effects"))
		for len(lines) > 0 {
			require.NotContains(t, <-lines, "dropped")
		}
	})
}

// Failure: F67
func TestNoMoreHandlersRunThanTheTypeAllows(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c := w.New(w.QuickConfig())
	var now, most atomic.Int32
	orders, err := compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, harness.Order) error {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		runtime.Gosched()
		return nil
	}, &compensator.HandlerConfig[harness.Order]{Concurrency: 3})
	require.NoError(t, err)
	w.Run(c)
	for range 5 {
		w.RecordMany(c, orders, 60, compensator.Options{})
		for i := range 10 {
			w.Record(orders, i, compensator.Options{})
		}
	}
	w.WaitAllEnded()
	require.LessOrEqual(t, most.Load(), int32(3))
}
