// Package otel reports to OpenTelemetry what a Compensator does: spans of attempts, metrics, and the trace context that
// travels with each entry. It needs only OpenTelemetry's API. Your SDK decides where the data goes.
//
// [New] returns a Telemetry with three parts: an Observer and a Propagator for compensator.Config, and middleware.
// [Telemetry.Attach] puts the middleware around handlers. Each part works without the others.
//
// docs/reference/telemetry.md lists the spans and the metrics with their units, labels and costs. The directory ops holds a
// Grafana dashboard and Prometheus rules.
//
// Of an entry, only its type, id, attempt, epoch and batch id are reported. Content and headers are never reported. The
// text of an error is reported only if [Options.ErrorText] is set. A provider that panics does no harm to an entry. A
// provider that blocks holds up the handlers, so export from a batching processor.
package otel
