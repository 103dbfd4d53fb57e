// Package oteltest holds the tests of package otel that need OpenTelemetry's SDK and Prometheus, and makes the board in
// ops/grafana. It is a module of its own, so that whoever imports otel never sees them.
package oteltest
