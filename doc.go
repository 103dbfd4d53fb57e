// Package compensator is a durable compensation log: work that must happen after a commit is written as an entry inside
// the caller's own SQL transaction, and done from there, soon or at its due time, with retries, compensation, and a person
// as the last resort.
//
// # Recording
//
// An [Entry] is a row of the process log, a table beside the business tables; [Migrate] creates it. Its business type
// names its handler, its content is what the handler is given, and its idempotent id makes telling an event twice
// harmless. [Type.Record] and [Compensator.Record] write it through any handle on an open transaction: *sql.Tx, *sqlx.Tx,
// bun's and ent's tx, and of GORM's the Statement.ConnPool. It exists exactly if that commits.
//
// # After the commit
//
// On a database opened through [Connector], or inside [Compensator.InTx], the commit itself tells the queue, and an entry
// with no delay can run right after it; otherwise [Receipt.Committed] does. Neither is needed for correctness: the
// reconciler finds what nobody announced, seconds later. When the answer to COMMIT is lost the error wraps
// [ErrCommitUnknown], and [Compensator.Resolve] finds out.
//
// # Handlers
//
// [Handle] registers a function for a type, [HandleTx] one whose effects in this database commit together with the entry's
// success, exactly once, and [HandleBatch] one that takes several entries. The error it returns is the outcome: nil,
// [Permanent], [RetryAfter], [Snooze], [Unavailable], or anything else for another try by the type's [Retry] schedule. A
// plain handler may run more than once for one entry: it gives [Entry.Key] to whatever it calls. A type with a [Breaker]
// waits as a whole while that is down.
//
// [Periodic] has an entry of a type recorded for each slot of a [Schedule], exactly one, by whichever process runs. Module
// cron makes schedules of cron expressions.
//
// # Compensation, and people
//
// An entry whose attempts are used up, or whose handler returned Permanent, is compensated if its type has a Compensate
// function, and is dead otherwise: [Compensator.List] finds those, [Compensator.Requeue] starts one afresh,
// [Compensator.SettleByHand] records that a person did the work. When the work is done or unwanted before it ran, say so
// with [Type.CompleteTx] or [Type.CancelTx] in the transaction that made it so.
//
// With Config.Operations set, each entry that dies opens a case. Package desk is what people may see and do about it;
// module ui has its pages, cmd/compensator its command line, module otel traces and metrics.
//
// # Running
//
// [Compensator.Run] works entries off until its context ends. A process that only records never calls it. Any number of
// processes may run on one database; claims decide. Losing Redis costs latency and nothing else: the database is polled
// until it is back, and the queue is rebuilt. Without Redis entries of other processes are found every
// Config.PollInterval.
//
// An entry is due by the database's clock. Only durations cross from one clock to another, rounded up: a wrong clock
// elsewhere makes entries late, never early. Only Options.At depends on this process's clock.
//
// # Caveats
//
//   - There is no order between entries, beyond earliest due first as a rule, but of types with TypeConfig.Serial.
//   - A process that is paused for longer than its lease may act outside this database after somebody else has taken
//     the entry over.
//   - Idempotent ids guard as long as entries are kept: see Config.Keep.
//   - DDL inside a transaction commits it, and its entries with it.
//   - Everything rests on a database that keeps what it has acknowledged: innodb_flush_log_at_trx_commit=1, no failover
//     to a replica that lags.
//
// Types that are only named here stand in packages processlog and observe; compensatortest is for tests of yours. Promises
// and their conditions are in docs/guarantees.md; for whoever runs it there is docs/operations.md.
package compensator
