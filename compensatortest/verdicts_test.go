package compensatortest_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
)

func newLog(t *testing.T) *compensator.Compensator {
	t.Helper()
	c, err := compensator.New(t.Context(), compensator.Config{Store: compensatortest.NewMemoryStore(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// docs/how-to/test-handlers.md lists what an entry holds after each kind of result of its handler.
func TestEntrySaysWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	busy := errors.New("busy")
	const schedule = time.Minute
	var answer error
	for name, c := range map[string]struct {
		returns     error
		compensates bool
		state       compensator.State
		counted     int
		due         time.Duration // 0: it is due at once, or has ended
		endedBy     compensator.EndedBy
	}{
		"nil":                    {nil, false, compensator.Succeeded, 0, 0, compensator.EndedByHandler},
		"an error":               {busy, false, compensator.Retrying, 1, schedule, ""},
		"RetryAfter":             {compensator.RetryAfter(time.Hour, busy), false, compensator.Retrying, 1, time.Hour, ""},
		"Permanent":              {compensator.Permanent(busy), false, compensator.Dead, 1, 0, compensator.EndedByPermanent},
		"Permanent, compensated": {compensator.Permanent(busy), true, compensator.Compensating, 1, 0, ""},
		"Snooze":                 {compensator.Snooze(time.Hour), false, compensator.Pending, 0, time.Hour, ""},
		"Unavailable":            {compensator.Unavailable(busy), false, compensator.Pending, 0, schedule, ""},
		"Unavailable until":      {compensator.RetryAfter(time.Hour, compensator.Unavailable(busy)), false, compensator.Pending, 0, time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			answer = c.returns
			log := newLog(t)
			cfg := compensator.HandlerConfig[int]{Retry: compensator.Fixed(schedule)}
			if c.compensates {
				cfg.Compensate = func(context.Context, *compensator.Entry, int) error { return nil }
			}
			pay, err := compensator.Handle(t.Context(), log, "pay", func(context.Context, *compensator.Entry, int) error { return answer }, &cfg)
			require.NoError(t, err)
			before := time.Now()
			e := compensatortest.Call(t, log, pay, 1, compensator.Options{})
			require.Equal(t, c.state, e.State)
			require.Equal(t, c.counted, e.ProcessCount)
			require.Equal(t, c.endedBy, e.EndedBy)
			if c.due > 0 {
				require.WithinDuration(t, before.Add(c.due), e.NextAt, c.due/2)
			}
			if !e.State.Terminal() {
				answer = nil
				compensatortest.Elapse(t, log, 2*time.Hour)
				want := compensator.Succeeded
				if c.compensates {
					want = compensator.Compensated
				}
				require.Equal(t, want, compensatortest.Attempt(t, log, e.ID).State)
			}
		})
	}
}

// MaxWait counts by the store's clock.
func TestWaitsCountInABubbleOnceMaxWaitIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLog(t)
		pay, err := compensator.Handle(t.Context(), log, "pay", func(context.Context, *compensator.Entry, int) error {
			return compensator.Unavailable(errors.New("down"))
		}, &compensator.HandlerConfig[int]{MaxWait: time.Hour})
		require.NoError(t, err)
		e := compensatortest.Call(t, log, pay, 1, compensator.Options{})
		require.Zero(t, e.ProcessCount)
		time.Sleep(time.Hour)
		require.Equal(t, 1, compensatortest.Attempt(t, log, e.ID).ProcessCount)
	})
}

func TestCallOfABatchIsABatchOfOne(t *testing.T) {
	t.Parallel()
	c := newLog(t)
	sizes := 0
	pay, err := compensator.HandleBatch(t.Context(), c, "pay", func(_ context.Context, items []compensator.Item[int]) []error {
		sizes += len(items)
		return []error{compensator.Unavailable(errors.New("down"))}
	}, &compensator.BatchConfig[int]{Breaker: compensator.Breaker{Of: 1, Pause: time.Hour}})
	require.NoError(t, err)
	for n := range 3 {
		require.Equal(t, compensator.Pending, compensatortest.Call(t, c, pay, n, compensator.Options{}).State)
	}
	require.Equal(t, 3, sizes)
}
