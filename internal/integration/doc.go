// Package integration has no code. Its directory is a module of tests with software that importers of the library must
// not download. These are database drivers and their wrappers, migration tools, brokers, OpenTelemetry's SDK,
// Prometheus and a browser.
package integration
