package pause

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

func pausable(t *testing.T, cfg engine.Config, read func(context.Context) ([]processlog.Setting, error)) (*Pauses, *engine.Type) {
	t.Helper()
	cfg.Log, cfg.ErrorNumber = slog.New(slog.DiscardHandler), func(error) uint16 { return 0 }
	e := engine.New(t.Context(), cfg)
	p := New(e, read)
	var typ *engine.Type
	require.NoError(t, e.Register(engine.Type{Name: "close_order", Concurrency: 2, Lease: time.Hour}, func(t *engine.Type) {
		typ = t
		p.Attach(t)
	}))
	t.Cleanup(e.Close)
	return p, typ
}

// Failure: F124
func TestNothingRunsBeforeThePausesAreKnown(t *testing.T) {
	var paused []processlog.Setting
	err := errors.New("gone away")
	p, typ := pausable(t, engine.Config{}, func(context.Context) ([]processlog.Setting, error) { return paused, err })
	runs := func(answer []processlog.Setting, fault error) bool {
		paused, err = answer, fault
		p.Look(t.Context())
		admitted, _ := typ.Admitted([]*engine.Attempt{{Type: typ}})
		require.Equal(t, typ.Paused(), typ.CallsAllowed() == 0)
		require.Equal(t, typ.Paused(), len(admitted) == 0)
		return !typ.Paused()
	}
	gone := err
	require.False(t, runs(nil, gone), "the type may be paused")
	require.True(t, runs(nil, nil))
	require.True(t, runs(nil, gone), "the pauses stay as they were")
	require.False(t, runs([]processlog.Setting{processlog.Pause(typ.Name)}, nil))
	require.False(t, runs(nil, gone), "the pauses stay as they were")
}

// Failure: F124
func TestPausesAreReadAgainSoonUntilTheyAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		p, typ := pausable(t, engine.Config{PollInterval: time.Second, ReconcileInterval: time.Hour}, func(context.Context) ([]processlog.Setting, error) {
			if asked++; asked < 3 {
				return nil, errors.New("gone away")
			}
			return nil, nil
		})
		ctx, stop := context.WithCancel(t.Context())
		p.Look(ctx)
		go p.Keep(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 3, asked)
		require.Equal(t, engine.Unlimited, typ.CallsAllowed())
		stop()
		synctest.Wait()
	})
}

// Failure: F124
func TestPauseEndsWhenTheDatabasesClockSaysSo(t *testing.T) {
	for name, tc := range map[string]struct {
		rate  float64 // seconds of the database's clock in a second of the process
		fails int     // reads that fail after the end of the pause
		reads int
	}{
		"same clock":                   {rate: 1, reads: 2},
		"the database's clock is slow": {rate: 0.99, reads: 4},
		"the database does not answer": {rate: 1, fails: 2, reads: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, asked := time.Now(), 0
				now := func() time.Time { return began.Add(time.Duration(float64(time.Since(began)) * tc.rate)) }
				pause := processlog.PauseFor("close_order", time.Minute)
				pause.At = began
				p, typ := pausable(t, engine.Config{PollInterval: time.Second, ReconcileInterval: time.Hour}, func(context.Context) ([]processlog.Setting, error) {
					asked++
					if !now().Before(began.Add(time.Minute)) && tc.fails > 0 {
						tc.fails--
						return nil, errors.New("gone away")
					}
					pause.ReadAt = now()
					return []processlog.Setting{pause}, nil
				})
				ctx, stop := context.WithCancel(t.Context())
				p.Look(ctx)
				require.Equal(t, []observe.PausedType{{BusinessType: "close_order", EndsAt: began.Add(time.Minute)}}, p.Paused())
				go p.Keep(ctx)
				for typ.Paused() {
					require.Less(t, time.Since(began), 70*time.Second, "the pause must end long before the next round")
					time.Sleep(time.Millisecond)
				}
				require.False(t, now().Before(began.Add(time.Minute)), "it ended at %v", now())
				require.Equal(t, tc.reads, asked)
				require.Empty(t, p.Paused())
				stop()
				synctest.Wait()
			})
		})
	}
}

// The process knows only the old end, and the reconciler's next round comes later.
// Failure: F124
func TestPauseWithANewEndGoesOnAtTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, length, version := time.Now(), time.Minute, uint64(1)
		p, typ := pausable(t, engine.Config{PollInterval: time.Second, ReconcileInterval: time.Hour}, func(context.Context) ([]processlog.Setting, error) {
			pause := processlog.PauseFor("close_order", length)
			pause.At, pause.ReadAt, pause.Version = began, time.Now(), version
			length, version = 2*time.Minute, 2 // after the first read
			return []processlog.Setting{pause}, nil
		})
		ctx, stop := context.WithCancel(t.Context())
		p.Look(ctx)
		go p.Keep(ctx)
		for typ.Paused() {
			require.Less(t, time.Since(began), 3*time.Minute)
			time.Sleep(time.Millisecond)
		}
		require.GreaterOrEqual(t, time.Since(began), 2*time.Minute)
		stop()
		synctest.Wait()
	})
}
