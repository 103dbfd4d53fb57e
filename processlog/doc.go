// Package processlog defines the terms of the library: entries and their states, rows and outcomes, the actions of
// services and people, and the rules for these actions. It also defines three interfaces. Store is the table of
// entries. Queue knows when entries are due. Operations serves the programs that people use.
//
// If Store and Queue disagree, Store is right, and Queue is only a hint (guarantee G10). Store consists of six
// interfaces, one for each kind of caller:
//   - Recorder for recording,
//   - Worker for running entries,
//   - Keeper for services and people,
//   - Calendar for periodic types,
//   - Ordering for ordered types,
//   - StartLimits for types with a limit on their starts.
//
// Two further interfaces are optional: InvalidRowFinder for a Store, and QueueInspector for a Queue.
//
// The methods of Store and Queue take durations and no times, because the process, the database and the queue each have
// their own clock (guarantee G9). The slots of a Calendar and the created range of a Filter are the exceptions.
//
// To write your own store or queue, you need only this package. Your implementation is correct if it passes
// suite.TestStore or suite.TestQueue of package compensatortest/suite. This package imports no other package of the
// library. It contains no SQL, no Redis code, and no goroutine. The root package has aliases for the types that users
// need.
package processlog
