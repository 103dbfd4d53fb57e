// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Unknown commits, and a database that goes back
//
// F19: The answer to your COMMIT is lost, hangs, or comes late.
// Result: Commit returns `ErrCommitUnknown`. `Resolve` waits for the transaction, and returns `ErrBusy` until the
// result is certain.
// Action: Call `Resolve`, or use `WithRetry`.
//
// F20: The answer to an outcome or to the COMMIT of a `HandleTx` is lost.
// Result: The outcome counts once, and the effect happens once.
//
// F21: The database loses acknowledged commits: a lagging replica is promoted, or a backup restored.
// Result: `Health` names the lost entries, and work continues, except with `StopOnLoss`. Lagging reads, rolled-back
// savepoints and purges are not reported.
// Action: Do what the guide [After a failover](../how-to/failover.md) says. Do not delete rows manually that a process
// saw within the last hour.

package history
