// Package compensatortest is for testing code that uses package compensator, without servers: MemoryStore
// stands in for the database and, with no Redis configured, the timing wheel for the queue; in a
// testing/synctest bubble both run on the bubble's clock, so that a month of delay takes no time. MemoryQueue
// stands in for a Redis that several Compensators share.
//
// Whoever writes a store or a queue finds the suites that hold it to the contract in package suite.
package compensatortest
