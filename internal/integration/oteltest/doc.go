// Package oteltest holds the tests of package otel that need OpenTelemetry's SDK and Prometheus. It also generates the
// dashboard in ops/grafana.
package oteltest
