// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Telemetry
//
// F128: A provider panics or is slow, values are odd or secret, or the database is silent.
// Result: No entry is harmed. A slow exporter is a slow handler. Series are bounded, secrets are not told, and a
// scrape ends after 5 s.
// Action: Export in the background.
//
// F129: Board, alerts and docs drift from the metrics.
// Result: Tests compare them, and fire each alert.

package oteltest
