// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Servers, drivers and sessions
//
// F31: A server or table cannot carry a log: too old, read-only, STATEMENT binlog, small columns, wrong charset,
// lenient mode, `autocommit=0`.
// Result: `New` names every fault at once. No test ran on a version without SKIP LOCKED.
// Action: Correct what `New` names.
//
// F32: A server accepts a statement and does something else, or its row locks lock nothing.
// Result: `New` tries each statement, and uses another form or refuses the server.
//
// F33: A session has unusual variables, time zone, rounding or row counts, or somebody changes them later.
// Result: Entries are stored as recorded, or `Record` refuses the session and names the variable.
// Action: Set the named variable back.
//
// F34: There are many entries at once, large contents, or strange error texts.
// Result: The library splits statements, refuses contents above `MaxContent`, and stores outcomes with any error
// text.
//
// F35: The database becomes read-only, closes idle connections, or moves to another server.
// Result: Outcomes wait. The library's connections move with your pool. The log names a pool that stays on the old
// server.
// Action: Set `rejectReadOnly=true`.
//
// F36: The log runs on Galera, group replication or Vitess.
// Result: On Galera, `KILL` commits the transaction that sends it, even if `KILL` fails. After that, `Record` refuses
// the transaction. On Galera, `Resolve` may return "not found" while another node still works on the transaction. In
// group replication `New` refuses a secondary. On Vitess one shard works, and several are not tested.
// Action: On Galera, take "not found" from `Resolve` as final only if no other node works on the transaction.
//
// F37: Table names or grants are unusual, or two processes migrate at once.
// Result: The library refuses unsafe names, and needs four rights. A migration that met a lock is tried again.
//
// F38: A transaction belongs to another database or shard.
// Result: `Record` and each action on a transaction (`…Tx`) refuse the transaction.
// Action: Pass a transaction of the log's own database.
//
// F39: A pooled session was left inside a transaction.
// Result: The library discards the session, and logs the reason.
// Action: Find the code that leaves the session in a transaction.
//
// F40: A driver lacks optional interfaces, or a tracing wrapper is inside or outside the `Connector`.
// Result: The library sees commits and rollbacks. If a wrapper hides the context, the log has a warning.
//
// F41: `Record` is called while the result of a query is still open.
// Result: The error names the open result.
// Action: Close the result first.

package servers
