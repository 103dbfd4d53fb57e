package running

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

// Failure: F9
func TestHandlerOutlivesTheRequestThatRecordedItsEntry(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg.Propagator = tracing{}
		c := w.New(cfg)
		cancelled := make(chan struct{})
		orders, err := compensator.Handle(t.Context(), c, "close_order", func(ctx context.Context, _ *compensator.Entry, _ harness.Order) error {
			<-cancelled
			assert.NoError(t, ctx.Err())
			assert.Equal(t, "trace-1", ctx.Value(traceKey{}), "carried because the propagator says so")
			assert.Nil(t, ctx.Value(requestKey{}), "carried without being requested")
			return ctx.Err()
		}, &compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
		require.NoError(t, err)
		w.Run(c)
		request, cancel := context.WithCancel(context.WithValue(context.WithValue(t.Context(), traceKey{}, "trace-1"), requestKey{}, "secret"))
		tx, err := cfg.DB.BeginTx(request, nil)
		require.NoError(t, err)
		receipt, err := orders.Record(request, tx, harness.Order{}, compensator.Options{})
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		receipt.Committed()
		require.NoError(t, c.InTx(request, func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := orders.Record(ctx, tx, harness.Order{}, compensator.Options{})
			return err
		}))
		cancel()
		close(cancelled)
		w.WaitAllEnded()
		assert.Equal(t, 2, w.Count("common_process_log WHERE state=1"))
	})
}

type traceKey struct{}

type requestKey struct{}

type tracing struct{}

func (tracing) Inject(ctx context.Context) map[string]string {
	return map[string]string{"trace": fmt.Sprint(ctx.Value(traceKey{}))}
}

func (tracing) Extract(ctx context.Context, headers map[string]string) context.Context {
	return context.WithValue(ctx, traceKey{}, headers["trace"])
}

// trippedUp is a Propagator that panics when it extracts the headers of an entry.
type trippedUp struct{ tracing }

func (trippedUp) Extract(context.Context, map[string]string) context.Context {
	panic("malformed trace")
}

// emptyHanded is a Propagator that returns a nil context from each call.
type emptyHanded struct{ tracing }

func (emptyHanded) Extract(context.Context, map[string]string) context.Context { return nil }

// Failure: F72
func TestEntryRunsThoughItsPropagatorFails(t *testing.T) {
	t.Parallel()
	for name, propagator := range map[string]compensator.Propagator{"panics": trippedUp{}, "answers with no context": emptyHanded{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			cfg := w.QuickConfig()
			cfg.Propagator = propagator
			c := w.New(cfg)
			orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
			w.Run(c)
			id := w.Record(orders, 1, compensator.Options{})
			w.WaitState(id, compensator.Succeeded)
			require.Equal(t, 1, ran.Of(id))
		})
	}
}
