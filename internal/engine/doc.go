// Package engine takes an entry from the commit of its transaction to its end. The database alone decides who has an entry and
// what became of it. Everything in memory ends with the process.
//
// This is the story of an entry, with the files in the order in which it passes them.
//
//   - Recorded (record.go): a service inserts the entry in its own transaction. Recording is told how that transaction ends.
//     After the commit it hands the entry to the source. A Starter may claim the entry here instead.
//   - Due (claimschedule.go, typeschedule.go): the claim schedule knows when each type is worth a claim. A source tells it
//     (source.go): a queue, for example. Without a source the reconciler does.
//   - Claimed (scanner.go, claims.go): the scanner begins a claim when a type is due. A claim leases rows in the database, and the
//     picker says which of them may run here while they are locked (picker.go). Package readahead keeps rows that were found due and not
//     tried yet. Leases of claims that ran nothing are given back (package releases).
//   - Run (dispatcher.go): each attempt (attempt.go) runs in a goroutine. The renewer keeps its lease
//     (renewer.go). Holdings.go knows what this process holds, from before the handler is called until the outcome is stored.
//   - Judged (outcome.go): the handler's error becomes an outcome: succeeded, due again, compensated, or dead.
//   - Settled (settler.go): outcomes are stored together, each guarded by the version that the claim has left. Rows that the
//     database refuses to change are offered less and less often (package refusals).
//   - Reconciled (reconciler.go): rounds find entries that are overdue, because a process died or a source forgot them.
//
// Features attach through seams and are not known here. An Admission says what may be claimed and started, and an
// Order which entries wait for others (admission.go). A
// Grouping has one call take several entries (grouping.go). A Settlement acts when outcomes are stored (settlement.go). A Recorder
// writes when entries are recorded, and a Starter starts them where they were recorded (record.go). A Source tells of due entries (source.go). Package internal/features attaches them.
//
// Three rules hold everywhere. Each write is guarded by what was read of the row (G4, G8), so losing a race is a normal result. The
// source is a hint (G10). Nothing blocks while it holds a mutex. Numbers such as G4 name the promises in docs/reference/guarantees.md.
//
// The root package makes an Engine and lends it the goroutines of Run: Scan, Reconcile and Renew end with their contexts, and Run waits
// for them. All other goroutines belong to group commits, which Drain and Close wait for, or to running handlers, which Drain waits
// for.
package engine
