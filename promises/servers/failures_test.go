// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Servers, drivers and sessions
//
// F31: A server or table cannot carry a log: too old, read-only, STATEMENT binlog, small columns, wrong charset,
// lenient mode, `autocommit=0`.
// Result: `New` names every fault at once. Versions without SKIP LOCKED are refused by number; none was run.
// Action: Correct what `New` names.
//
// F32: A server accepts a statement and does something else, or its row locks lock nothing.
// Result: `New` tries each statement without writing, and takes another form or refuses. Versions still give each
// entry one owner.
//
// F33: A session has unusual variables, time zone, rounding or row counts, or somebody sets them later.
// Result: Entries are stored as recorded, or `Record` refuses the session by the variable's name.
// Action: Set the named variable back.
//
// F34: There are many entries at once, large contents, or strange error texts.
// Result: Statements are split by rows and by packet size. A content above `MaxContent` is refused at once. An entry
// advances whatever its error says.
//
// F35: The database becomes read-only, closes idle connections, or moves to another server.
// Result: Outcomes wait, and handlers are not repeated. The library's connections follow yours. The log names a pool
// that stays behind.
// Action: Set `rejectReadOnly=true`.
//
// F36: The log runs on Galera, group replication or Vitess.
// Result: Galera: claims have one owner, and a failed KILL may have committed. Group: a pool that leads to a secondary
// is refused. Vitess: one shard works; several are not tested.
// Action: On Galera, "not found" by `Resolve` is not final while another node works on the transaction.
//
// F37: Table names or grants are unusual, or two processes migrate at once.
// Result: Unsafe names are refused, four rights are enough at run time, and a migration that met a lock is tried
// again.
//
// F38: A transaction belongs to another database or shard.
// Result: `Record` and each `…Tx` action refuse it.
// Action: Pass a transaction of the log's own database.
//
// F39: A pooled session was left inside a transaction.
// Result: The library discards it and takes the next one.
// Action: Find the code that leaves it; the log says why.
//
// F40: A driver lacks optional interfaces, or tracing wrappers stand around the `Connector`.
// Result: Commits and rollbacks are seen. A wrapper that hides its context is warned of once.
//
// F41: `Record` is called while rows are open.
// Result: The error names the open rows.
// Action: Close them first.

package servers
