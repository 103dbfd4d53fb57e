package otel

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/compensator-go/compensator"
)

// Propagator carries the trace context from Record to the handler, in the headers traceparent and tracestate of the W3C:
// some 75 bytes an entry, and none where no trace is under way. Baggage stays behind: headers are stored. So does a
// tracestate of more than 512 bytes, which is all that others must pass on: an entry is never refused for its trace. But
// Options.Headers of these names are refused while a trace is under way, as any that a propagator sets, too. A relay's
// consumer takes it as its Propagator.
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
