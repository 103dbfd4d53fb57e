// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Servers, drivers and sessions
//
// F31: A server or table cannot carry a log: too old, read-only, STATEMENT binlog, small columns, wrong charset,
// lenient mode, `autocommit=0`.
// Result: `New` names every fault at once. `New` refuses versions without SKIP LOCKED by their number. No test ran on
// such a version.
// Action: Correct what `New` names.
//
// F32: A server accepts a statement and does something else, or its row locks lock nothing.
// Result: `New` tries each statement without writing, and uses another form or refuses the server. The version of a
// row still gives each entry one owner.
//
// F33: A session has unusual variables, time zone, rounding or row counts, or somebody changes them later.
// Result: Entries are stored as they were recorded, or `Record` refuses the session and names the variable.
// Action: Set the named variable back.
//
// F34: There are many entries at once, large contents, or strange error texts.
// Result: The library splits statements by the number of rows and by the packet size. It refuses a content above
// `MaxContent` at once. It stores the outcome of an entry whatever text the error has.
//
// F35: The database becomes read-only, closes idle connections, or moves to another server.
// Result: Outcomes wait, and handlers do not run again. The library's connections move with those of your pool. The
// log names a pool that stays on the old server.
// Action: Set `rejectReadOnly=true`.
//
// F36: The log runs on Galera, group replication or Vitess.
// Result: On Galera each claim has one owner, and a failed KILL may have committed. With group replication, `New`
// refuses a pool that leads to a secondary. On Vitess one shard works, and several are not tested.
// Action: On Galera, "not found" by `Resolve` is not final while another node works on the transaction.
//
// F37: Table names or grants are unusual, or two processes migrate at once.
// Result: The library refuses unsafe names. Four rights are enough at run time. A migration that met a lock is tried
// again.
//
// F38: A transaction belongs to another database or shard.
// Result: `Record` and each action on a transaction (`…Tx`) refuse the transaction.
// Action: Pass a transaction of the log's own database.
//
// F39: A pooled session was left inside a transaction.
// Result: The library discards it and takes the next one.
// Action: Find the code that leaves the session in a transaction. The log has the reason.
//
// F40: A driver lacks optional interfaces, or a tracing wrapper is inside or outside the `Connector`.
// Result: The library sees commits and rollbacks. If a wrapper hides the context, the log has one warning.
//
// F41: `Record` is called while the result of a query is still open.
// Result: The error names the open result.
// Action: Close the result first.

package servers
