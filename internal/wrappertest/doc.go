// Package wrappertest holds the tests of what others put around a driver, or around a Connector: tracing by otelsql and
// sqlmw, and what hands no context on. It is a module of its own, so that whoever imports compensator never sees them.
package wrappertest
