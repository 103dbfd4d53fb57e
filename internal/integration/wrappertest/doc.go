// Package wrappertest tests wrappers around a driver or a Connector: otelsql and sqlmw for tracing, and wrappers that
// pass no context on.
package wrappertest
