// Package wrappertest tests wrappers around a driver or a Connector: otelsql and sqlmw for tracing, and wrappers that
// pass no context on. It is a separate module, so that importers of compensator do not depend on them.
package wrappertest
