// Package compensator is a durable compensation log. Work that must happen after a commit is written as an entry inside
// the caller's own SQL transaction. The library then runs the entry, at once or at its due time. It retries,
// compensates, and leaves an entry to a person as the last resort.
//
// # Recording
//
// An [Entry] is a row of the process log. [Migrate] creates this table beside your business tables. The business type
// of an entry names its handler, and its content is the handler's input. Its idempotency key makes it harmless to
// record the same event twice. [Type.Record] and [Compensator.Record] write the entry through any handle on an open
// transaction: a *sql.Tx, a *sqlx.Tx, the transactions of bun and ent, or Statement.ConnPool of GORM. The entry exists
// if, and only if, that transaction commits.
//
// # After the commit
//
// An entry without a delay can run right after the commit. The library sees the commit by itself on a database opened
// through [Connector], and inside [Compensator.InTx]. Otherwise call [Receipt.Committed]. If the library does not learn
// of the commit in one of these ways, the reconciler finds the entry some seconds later. If the answer to COMMIT is
// lost, the error of Commit wraps [ErrCommitUnknown], and [Compensator.Resolve] finds out whether the transaction
// committed.
//
// # Handlers
//
// [Handle] registers a function for a type. [HandleTx] registers a function whose effects in this database commit
// together with the success of the entry, exactly once. [HandleBatch] registers a function that takes several entries.
// The error that a handler returns decides the outcome. nil is success. [Permanent], [RetryAfter], [Snooze] and
// [Unavailable] make errors that ask for a special outcome. Any other error asks for another attempt by the [Retry]
// schedule of the type. A plain handler may run more than once for one entry. So pass [Entry.CallKey] to every service
// that it calls.
//
// [Periodic] records exactly one entry for each slot of a [Schedule], from any running process.
//
// # Compensation, and people
//
// An entry needs compensation when its attempts are used up, or when its handler returned Permanent. The Compensate
// function of its type then runs. An entry of a type without Compensate becomes dead. In package admin, Log.List finds
// dead entries, Log.Requeue runs a dead entry again, and Log.SettleManually records that a person has done the work of
// a dead entry. Sometimes another transaction does the work of an entry before its handler runs, or makes it
// unnecessary. Call [Type.CompleteTx] or [Type.CancelTx] in that transaction.
//
// With Config.Operations set, a case is opened for every entry that becomes dead. Package admin decides what people may
// see and do about a case, and package ui has pages for cases.
//
// # Running
//
// [Compensator.Run] runs entries until its context ends. A process that only records entries never calls Run. Any
// number of processes may run on one database, and claims decide which process runs an entry. If Redis is lost, entries
// only start later. Without Redis, a process finds the entries of other processes every Config.PollInterval.
//
// The clock of the database decides when an entry is due. A wrong clock of another machine makes entries late, never
// early. Only Options.At depends on the clock of this process.
//
// # Caveats
//
//   - Entries have no order. The earliest due entry usually runs first. Only TypeConfig.Serial gives an order.
//   - A process that pauses for longer than its lease may act outside this database after another process has taken the
//     entry over.
//   - An idempotency key prevents a second entry for the same event only as long as the log keeps the first entry: see
//     Config.Keep.
//   - DDL inside a transaction commits the transaction, and its entries with it.
//   - The database must keep what it has acknowledged. Set innodb_flush_log_at_trx_commit=1, and never fail over to a
//     replica that lags.
//
// The promises and their conditions are in docs/reference/guarantees.md.
package compensator
