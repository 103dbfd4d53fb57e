// Package memory keeps the three contracts of package processlog in this process, without servers: Store, with Operations,
// as InnoDB does at READ COMMITTED, Queue as Redis does, to the millisecond. In a testing/synctest bubble both run on the
// bubble's clock. Users' unit tests and the simulation stand on them.
//
// Both pass the suites of package suite, and programs drawn at random compare them with a database and a Redis.
// No goroutine is theirs: each call does its work, and what waits waits in its caller's.
//
// On purpose they can do what servers do on bad days: lose, go back to a snapshot, crash, and have a wrong clock.
package memory
