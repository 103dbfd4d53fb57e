package oteltest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/otel"
)

func traced(ctx context.Context, state trace.TraceState) context.Context {
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state}))
}

func propagator(t *testing.T) compensator.Propagator {
	telemetry, err := otel.New(otel.Options{})
	require.NoError(t, err)
	return telemetry.Propagator()
}

// Failure: F128
func TestTraceContextAloneTravelsWithAnEntry(t *testing.T) {
	t.Parallel()
	p := propagator(t)
	member, err := baggage.NewMember("user", "alice")
	require.NoError(t, err)
	bag, err := baggage.New(member)
	require.NoError(t, err)
	state, err := trace.ParseTraceState("vendor=1")
	require.NoError(t, err)
	ctx := baggage.ContextWithBaggage(traced(t.Context(), state), bag)
	headers := p.Inject(ctx)
	assert.Equal(t, map[string]string{"traceparent": "00-01000000000000000000000000000000-0200000000000000-01", "tracestate": "vendor=1"}, headers)
	back := trace.SpanContextFromContext(p.Extract(t.Context(), headers))
	assert.True(t, back.IsRemote())
	assert.True(t, back.WithRemote(false).Equal(trace.SpanContextFromContext(ctx)))
}

// Failure: F128
func TestEntryWithoutATraceCarriesNoHeaders(t *testing.T) {
	t.Parallel()
	p := propagator(t)
	assert.Nil(t, p.Inject(t.Context()))
	for _, headers := range []map[string]string{nil, {"tenant": "42"}, {"traceparent": "00-zz"}, {"traceparent": "00-00000000000000000000000000000000-0000000000000000-00"}} {
		assert.False(t, trace.SpanContextFromContext(p.Extract(t.Context(), headers)).IsValid())
	}
}

// Failure: F128
func TestLongTraceStateRefusesNoEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, otel.Options{})
	var state trace.TraceState
	for i := range 32 {
		var err error
		state, err = state.Insert(fmt.Sprintf("vendor%d", i), fmt.Sprintf("%0200d", i))
		require.NoError(t, err)
	}
	orders := w.handle("close_order", func(context.Context, *compensator.Entry, string) error { return nil }, compensator.HandlerConfig[string]{})
	id := w.record(traced(t.Context(), state), orders, compensator.Options{Headers: map[string]string{"tenant": "42"}})
	e, err := w.c.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"tenant": "42", "traceparent": "00-01000000000000000000000000000000-0200000000000000-01"}, e.Headers)
}
