// Package memory implements the three contracts of package processlog in this process, for unit tests and the
// simulation.
//
// Store behaves like InnoDB at READ COMMITTED, and Queue like Redis, to the millisecond. In a testing/synctest bubble
// both use the bubble's clock.
//
// The package starts no goroutine. A call that has to wait blocks its caller's goroutine.
package memory
