// Package processlog defines the terms and the contracts of the library: entries and their states, rows and outcomes,
// the actions of services and people and their rules. It also defines three interfaces. Store is the table of entries.
// Queue tells when an entry is due. Operations is what people need.
//
// The store is the truth, and the queue is a hint (G10). Store consists of five contracts, one for each kind of caller:
//   - Recorder for recording,
//   - Worker for running entries,
//   - Keeper for services and people,
//   - Calendar for periodic types,
//   - Turns for ordered types.
//
// Both interfaces take durations only, because each side has its own clock (G9). The slots of
// a Calendar are the one exception.
//
// To write a store or a queue, you need only this package. Your implementation is right if it passes suite.TestStore or
// suite.TestQueue of package compensatortest/suite. This package imports no other package of the library. It contains
// no SQL, no Redis, and no goroutine. The root package has aliases for the types that users need.
package processlog
