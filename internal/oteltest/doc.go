// Package oteltest holds the tests of package otel that need OpenTelemetry's SDK and Prometheus. It also generates the
// dashboard in ops/grafana. It is a separate module, so that importing otel does not pull in these dependencies.
package oteltest
