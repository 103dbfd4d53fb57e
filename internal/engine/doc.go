// Package engine takes an entry from the commit of its transaction to its rest: it waits for its moment, is claimed,
// run, settled, and where a server has forgotten it, found again.
//
// It knows business types as plain structs with functions, the log and the queue by the contracts of package
// processlog, and neither SQL nor Redis nor whoever watches transactions. What it keeps in memory ends with the
// process: who has an entry and what became of it the rows alone decide, each write guarded by what was read of it
// (G4, G8), and the queue is a hint (G10). Where a line has to be as it is because of a promise its number stands
// there; docs/guarantees.md has them all.
//
// The root package makes one, hands it what is recorded (Recording) and changed (Changed), and lends Run's goroutines
// to its loops: Scan, Reconcile, Listen and Renew, which end with their contexts and which
// Run waits for. All other goroutines are those of its group commits, which Drain and Close wait for, and those of running
// handlers, which Drain waits for.
//
// Its parts know those beneath them, and none above: engine.go makes them in that order, and reads as their list.
package engine
