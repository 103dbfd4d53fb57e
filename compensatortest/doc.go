// Package compensatortest is for testing code that uses package compensator. Call runs one handler, RequireRecorded, Run,
// WaitIdle and Elapse follow entries; all of them take any Compensator. One with no server and a real database, on which
// transactional handlers run, is New of module compensatortest/sqlitetest.
//
// With no SQL at all, MemoryStore stands in for the database and, with no Redis configured, the timing wheel for the queue; in a
// testing/synctest bubble both run on the bubble's clock: a month of delay takes some 3 seconds where PollInterval and
// ReconcileInterval are an hour, for the bubble lives each of the library's looks. MemoryQueue stands in for a Redis that several
// Compensators share.
//
// Whoever writes a store or a queue finds the suites that hold it to the contract in package suite.
package compensatortest
