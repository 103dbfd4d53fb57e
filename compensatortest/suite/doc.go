// Package suite is for whoever writes a store or a queue: TestStore and TestQueue try every promise of the contracts
// in package processlog, TestStore those of Operations too where the store is one. An implementation that passes, with
// nothing skipped that it can do, may stand behind a Compensator; the library's own are held to it, on every database and
// queue, and the doubles of package memory with them.
//
// It knows the contracts and nothing else of the library: no SQL, no Redis. New in a contract means a new promise here.
package suite
