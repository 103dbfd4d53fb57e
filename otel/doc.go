// Package otel tells OpenTelemetry what a Compensator does: spans of attempts, metrics, and the trace context that travels
// with each entry. It needs OpenTelemetry's API alone; what becomes of it all is your SDK's to say.
//
//	telemetry, err := otel.New(otel.Options{}) // the global providers
//	c, err := compensator.New(ctx, compensator.Config{DB: db, Observer: telemetry.Observer(), Propagator: telemetry.Propagator()})
//	detach, err := telemetry.Attach(c) // before handlers are registered
//
// Spans, metrics with their units and labels, and what they cost are in docs/telemetry.md; a board for Grafana and rules for
// Prometheus stand in ops.
//
// Nothing of an entry is told but its type, id, attempt, epoch and batch id: no content, no headers, no error's text unless
// [Options.ErrorText] is set. A provider that panics harms no entry. One that blocks holds up the handlers, as anything
// does that they call: export from a batching processor.
package otel
