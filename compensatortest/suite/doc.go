// Package suite tests implementations of a store or a queue: TestStore and TestQueue test every promise of the
// contracts in package processlog. If a store implements Operations, TestStore tests this contract too.
//
// A Compensator may use an implementation that passes. Fill in the harness as far as the implementation allows, because
// the suite skips the promises that the harness cannot test. The package uses no SQL and no Redis. Each addition to a
// contract needs a new promise here.
package suite
