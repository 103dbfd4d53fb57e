// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Transactions and commits
//
// F1: Your transaction rolls back: by your code, a cancelled context, a panic, a lost connection or a savepoint.
// Result: Its entries leave no row, and no handler runs.
// Action: After a lost connection, ask `Resolve` for the result.
//
// F2: The server rolls your transaction back (errors 1213, 1020, or 1205 with `innodb_rollback_on_timeout`), and your
// code swallows the error.
// Result: `Record` returns an error. On a `Connector` and in `InTx`, your own statements return one, too. Entries that
// were recorded before the rollback do not run.
// Action: Return the error, and run the transaction again. On a plain pool outside `InTx`, the library cannot refuse
// your statements.
//
// F3: `Record` fails or refuses an entry, and your code commits all the same.
// Result: A `Connector` and `InTx` roll back at Commit with `ErrNotRecorded`. They also refuse DDL, a nested BEGIN
// and a procedure that commits.
// Action: Return the error, or roll back to a savepoint. A plain `*sql.Tx` cannot refuse the commit.
//
// F4: `Record` gets a handle without an open transaction.
// Result: `Record` refuses the handle. A value of your own type that embeds an open transaction is accepted.
//
// F5: DDL, `LOCK TABLES`, an XA statement, a second BEGIN, or a COMMIT sent as SQL text ends your transaction early.
// Result: Entries recorded before are durable and run. A later `Record` is refused or joins the new transaction.
// Action: Keep such statements out of your transactions.
//
// F6: Redis is silent or fails when you commit.
// Result: Commit returns at once, without an error. The entry runs once.
//
// F7: A transaction stays open beyond its lease, or is abandoned.
// Result: If a transaction commits after its lease, each entry runs with one effect. Abandoned transactions keep no
// slots.
//
// F8: A handler records follow-up entries, and its attempt fails.
// Result: In `HandleTx` the follow-up entries exist exactly if the attempt succeeded.
// Action: In a plain handler, record them in a transaction of your own.
//
// F9: The request ends, or its buffers change, before the handler runs.
// Result: Each attempt gets the recorded bytes and its own context.
//
// F10: An ORM commits, rolls back or caches statements in a handler's transaction.
// Result: Only the library commits the transaction. A rollback makes the attempt fail.
//
// F11: On SQLite a reader or a deferred constraint refuses COMMIT.
// Result: The refused transaction is rolled back, so it keeps no lock. `WithRetry` then runs it again.
//
// F12: A transaction on a plain pool commits, and nobody calls `Committed`.
// Result: The library polls for a minute, first after 50 ms. A round of the reconciler finds the entry later.
// Action: Use a `Connector`, or call `Committed`.

package commits
