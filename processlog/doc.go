// Package processlog defines the terms of the library: entries and their states, rows and outcomes, and the actions of
// services and people.
//
// Store is the table of entries. Queue knows when entries are due. Operations serves the programs that people use. If
// Store and Queue disagree, Store is right, and Queue is only a hint (guarantee G10). The methods of Store and Queue take
// durations and no times, because the process, the database and the queue each have their own clock (guarantee G9). The
// slots of a Calendar and the created range of a Filter are the exceptions.
//
// To write your own store or queue, you need only this package. Your implementation is correct if it passes
// suite.TestStore or suite.TestQueue of package compensatortest/suite. InvalidRowFinder and QueueInspector are optional.
//
// This package imports no other package of the library, and starts no goroutine. The root package has aliases for the
// types that users need.
package processlog
