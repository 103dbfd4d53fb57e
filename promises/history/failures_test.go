// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Unknown commits, and a database that goes back
//
// F19: The answer to your COMMIT is lost, hangs, or comes late.
// Result: Commit returns `ErrCommitUnknown`. `Resolve` waits for the transaction, and returns `ErrBusy` until the
// result is certain.
// Action: Call `Resolve`, or use `WithRetry`. Do not take the error for a rollback.
//
// F20: The answer to an outcome or to the COMMIT of a `HandleTx` is lost.
// Result: The row shows what happened. The outcome is counted once, and the effect happens once.
//
// F21: The database loses acknowledged commits: a lagging replica is promoted, or a backup restored.
// Result: The rollback detector reports the loss, and `Health` names the lost entries. Work continues. With
// `StopOnLoss` the process starts nothing until a person accepts the loss. The detector does not report lagging reads,
// rolled-back savepoints and purges as a loss.
// Action: See G19. Do not delete rows manually that a process saw within the last hour.

package history
