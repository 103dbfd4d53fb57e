package otel

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/compensator-go/compensator"
)

// Propagator returns a Propagator that carries the trace context from Record to the handler. It uses the W3C headers
// traceparent and tracestate, which take about 75 bytes per entry. During an active trace, Record refuses
// Options.Headers with these names. Without an active trace it adds no headers.
//
// It does not carry baggage, because headers are stored. It drops a tracestate of more than 512 bytes, so that no entry
// is refused because of its trace. The consumer of a relay can use this Propagator too.
func (t *Telemetry) Propagator() compensator.Propagator { return propagator{} }

type propagator struct{ w3c propagation.TraceContext }

const maxTraceState = 512

func (p propagator) Inject(ctx context.Context) map[string]string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	headers := propagation.MapCarrier{}
	p.w3c.Inject(ctx, headers)
	if len(headers["tracestate"]) > maxTraceState {
		delete(headers, "tracestate")
	}
	return headers
}

func (p propagator) Extract(ctx context.Context, headers map[string]string) context.Context {
	if headers["traceparent"] == "" {
		return ctx
	}
	return p.w3c.Extract(ctx, propagation.MapCarrier(headers))
}
