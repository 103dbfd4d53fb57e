// Package compensatortest helps you to test code that uses package compensator.
//
// Call and Attempt run one handler. RequireRecorded lists entries. Run, WaitIdle and Elapse let entries run. All of
// them take any Compensator. Function New in module compensatortest/sqlitetest returns a Compensator on a real database
// without a server.
//
// MemoryStore replaces the database when a test needs no SQL. Without a Redis in the Config, the library uses its
// in-process timing wheel as the queue. MemoryQueue replaces a Redis that several Compensators share.
//
// In a testing/synctest bubble the doubles use the bubble's clock.
//
// Package suite holds the conformance tests for your own store or queue.
package compensatortest
