// Package suite tests implementations of a store or a queue: TestStore and TestQueue test every promise of the
// contracts in package processlog. If a store implements Operations, TestStore tests this contract too.
//
// A Compensator may use an implementation that passes, if the suite skips nothing that the implementation can do. The
// package uses no SQL and no Redis. Each addition to a contract needs a new promise here.
package suite
