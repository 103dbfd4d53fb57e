// Package otel tells OpenTelemetry what a Compensator does: spans of attempts, metrics, and the trace context that travels
// with each entry. It needs OpenTelemetry's API alone; what becomes of it all is your SDK's to say.
//
// [New] makes the three parts: an Observer and a Propagator for compensator.Config, and middleware, which [Telemetry.Attach]
// puts around handlers. All three together tell all there is; each works without the others.
//
// Spans, metrics with their units and labels, and what they cost are in docs/telemetry.md; a board for Grafana and rules for
// Prometheus stand in ops.
//
// Nothing of an entry is told but its type, id, attempt, epoch and batch id: no content, no headers, no error's text unless
// [Options.ErrorText] is set. A provider that panics harms no entry. One that blocks holds up the handlers, as anything
// does that they call: export from a batching processor.
package otel
