package wrappertest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
)

// traces carries the trace context of OpenTelemetry in the headers of entries.
type traces struct{ propagation.TextMapPropagator } // traces{propagation.TraceContext{}}

func (p traces) Inject(ctx context.Context) map[string]string {
	headers := make(propagation.MapCarrier)
	p.TextMapPropagator.Inject(ctx, headers)
	return headers
}

func (p traces) Extract(ctx context.Context, headers map[string]string) context.Context {
	return p.TextMapPropagator.Extract(ctx, propagation.MapCarrier(headers))
}

func TestTraceGoesOnWhereItsEntryRuns(t *testing.T) {
	t.Parallel()
	c, err := compensator.New(t.Context(), compensator.Config{Store: compensatortest.NewMemoryStore(), Propagator: traces{propagation.TraceContext{}}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	ran := make(chan trace.SpanContext, 1)
	orders, err := compensator.Handle(t.Context(), c, "order", func(ctx context.Context, _ *compensator.Entry, _ string) error {
		ran <- trace.SpanContextFromContext(ctx)
		return nil
	}, nil)
	require.NoError(t, err)
	compensatortest.Run(t, c)
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	require.NoError(t, c.InTx(trace.ContextWithSpanContext(t.Context(), span), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := orders.Record(ctx, tx, "42", compensator.Options{})
		return err
	}))
	got := <-ran
	assert.Equal(t, span.TraceID(), got.TraceID())
	assert.Equal(t, span.SpanID(), got.SpanID())
	assert.True(t, got.IsRemote())
}
