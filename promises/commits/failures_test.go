// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Transactions and commits
//
// F1: Your transaction rolls back: by you, a cancelled context, a panic, a lost connection, or a savepoint.
// Result: Its entries leave no row, and no handler runs. After a lost connection you do not know whether the
// transaction committed. An id may stay in the queue until the next claim removes it.
//
// F2: The server rolls your transaction back (errors 1213, 1020, or 1205 with `innodb_rollback_on_timeout`), and your
// code swallows the error.
// Result: `Record` refuses the transaction. If the library watches the transaction, every further statement returns
// `ErrTxAborted`. An entry that was recorded before the rollback never runs, and the log names it as missing.
// Action: Return the error. Run the transaction again, for example by `WithRetry`. On a plain handle, the library
// cannot refuse your own statements.
//
// F3: `Record` fails or refuses an entry, and your code commits all the same.
// Result: A `Connector` and `InTx` roll back at Commit and return `ErrNotRecorded`. DDL, a nested BEGIN and a
// procedure that commits are refused too.
// Action: Return the error, or roll back to a savepoint set before. A plain `*sql.Tx` cannot refuse: the error of
// `Record` is all you get.
//
// F4: `Record` gets a handle without an open transaction.
// Result: `Record` refuses the handle. Transactions in a wrapper work.
//
// F5: DDL, `LOCK TABLES`, an XA statement, a second BEGIN, or a COMMIT sent as SQL text ends your transaction early.
// Result: Entries that were recorded before are durable and run. A later `Record` is refused or joins the new
// transaction.
// Action: Keep such statements out of your transactions.
//
// F6: Redis is silent or fails when you commit.
// Result: Commit returns at once, without an error. The entry runs once.
//
// F7: A transaction stays open beyond its lease, or is abandoned.
// Result: If the transaction commits late, its entry has one effect. Abandoned transactions keep no slots.
//
// F8: A handler records follow-up entries, and its attempt fails.
// Result: In `HandleTx` the follow-up entries exist exactly if the attempt succeeded.
// Action: In a plain handler, record follow-up entries in a transaction of your own.
//
// F9: The request ends, or its buffers change, before the handler runs.
// Result: Each attempt gets the recorded bytes and its own context. Of the request's context, only the propagator's
// values reach the handler.
//
// F10: An ORM commits, rolls back or caches statements in a handler's transaction.
// Result: The library alone commits the transaction. A rollback makes the attempt fail.
//
// F11: On SQLite a reader or a deferred constraint refuses COMMIT.
// Result: `WithRetry` runs the transaction again. The transaction keeps no lock meanwhile.
//
// F12: A transaction on a plain pool commits, and nobody calls `Committed`.
// Result: The library looks for the entry 50 ms, 200 ms and 1 s after `Record`, and then about every second for a
// minute. After that, the entry waits for a round of the reconciler.
// Action: Use a `Connector`, or call `Committed`.

package commits
