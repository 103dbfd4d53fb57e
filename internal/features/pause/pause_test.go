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
)

// pausable returns a type, and the Pauses of its engine, which call the function read.
func pausable(t *testing.T, cfg engine.Config, read func(context.Context) (map[string]bool, error)) (*Pauses, *engine.Type) {
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

// A process that could not read the pauses must not run a paused type. A process that has read them once keeps to that
// result.
// Failure: F124
func TestNothingRunsBeforeThePausesAreKnown(t *testing.T) {
	var paused map[string]bool
	err := errors.New("gone away")
	p, typ := pausable(t, engine.Config{}, func(context.Context) (map[string]bool, error) { return paused, err })
	runs := func(answer map[string]bool, fault error) bool {
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
	require.False(t, runs(map[string]bool{typ.Name: true}, nil))
	require.False(t, runs(nil, gone), "the pauses stay as they were")
}

// Failure: F124
func TestPausesAreReadAgainSoonUntilTheyAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		p, typ := pausable(t, engine.Config{PollInterval: time.Second, ReconcileInterval: time.Hour}, func(context.Context) (map[string]bool, error) {
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
