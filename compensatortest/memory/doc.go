// Package memory implements the three contracts of package processlog in this process, without servers. Unit tests of
// users and the simulation use it.
//
// Store implements the store and Operations. It behaves like InnoDB at READ COMMITTED. Queue behaves like Redis, to the
// millisecond. In a testing/synctest bubble both use the bubble's clock.
//
// Both pass the suites of package suite. Random programs compare them with a real database and a real Redis.
//
// The package starts no goroutine. A call that has to wait blocks its caller's goroutine.
//
// Store and Queue can also fail as servers do. A test can make them lose data, go back to a snapshot, crash, or have a
// wrong clock.
package memory
