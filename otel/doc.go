// Package otel reports the work of a Compensator to OpenTelemetry: spans of attempts, metrics, and the trace context
// that is stored with each entry.
//
// [New] returns a Telemetry with three parts: an Observer, a Propagator and middleware. [Telemetry.Configure] puts them
// into a compensator.Config. [Telemetry.Attach] registers gauges.
//
// docs/reference/telemetry.md lists the spans and the metrics with their units, labels and costs.
//
// The package reports only these facts about an entry: its type, id, attempt, epoch and batch id. It never reports
// content and headers. It reports the text of an error only if [Options.ErrorText] is set. A provider that panics does
// no harm to an entry. A provider that blocks delays the handlers, so export from a batching processor.
package otel
