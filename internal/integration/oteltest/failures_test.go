// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Telemetry
//
// F128: A provider panics or is slow, values are unusual or secret, or the database does not answer.
// Result: Only a slow exporter makes its handler slow. Series are limited, secrets are not reported, and a scrape
// ends after 5 s.
// Action: Export in the background.
//
// F129: The dashboard, the alerts or the docs no longer match the metrics.
// Result: Tests compare them, and make each alert fire.

package oteltest
