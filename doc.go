// Package compensator is a durable compensation log: work that must happen after a commit is written as an
// entry inside the caller's own SQL transaction, and done from there, soon or at its due time, with retries,
// compensation, and a person as the last resort.
//
// # An entry
//
// An [Entry] is a row of the process log, a table beside the business tables; [Migrate] creates it. Its
// business type names its handler, its content is what the handler is given, and its idempotent id makes
// recording the same business event twice harmless.
//
// # Recording
//
// [Type.Record] and [Compensator.Record] write entries through any handle on an open transaction: *sql.Tx,
// *sqlx.Tx, bun's, ent's and GORM's. They neither begin nor commit. The entry exists exactly if the
// transaction commits; given no open transaction, Record refuses with [ErrNoTransaction], because the entry
// would be durable although the business change might not be.
//
// # After the commit
//
// Somebody has to tell the queue. On a database opened through [Connector], or inside [Compensator.InTx], the
// commit itself does; otherwise [Receipt.Committed] does. Neither is needed for correctness: an entry nobody
// announced is found by the reconciler, seconds later. Where the end of the transaction is seen, an entry with
// no delay, of a type that runs here and has a slot free, is leased to this process by its own INSERT and runs
// right after the commit, with no further claim.
//
// A COMMIT whose answer was lost may have happened or not. The error then wraps [ErrCommitUnknown], and
// [Compensator.Resolve] finds out.
//
// # Handlers
//
// [Handle] registers a function for a type, [HandleTx] one whose effects in this database commit together
// with the entry's success, exactly once, and [HandleBatch] one that takes several entries. The error a
// handler returns is the outcome: nil, [Permanent], [RetryAfter], [Snooze], [Unavailable], or anything else for
// another try by the type's [Retry] schedule. A plain handler may run more than once for one entry: after a
// crash, or after a pause longer than its lease. [Entry.Key] is the idempotency key to give to others.
//
// # Compensation, and people
//
// An entry whose attempts are used up, or whose handler returned Permanent, is compensated if its type has a
// Compensate function, with attempts of its own, and is dead otherwise: [Compensator.List] finds those,
// [Compensator.Requeue] starts one afresh, [Compensator.SettleByHand] records that a person did the work. Both
// want to know who and why, and keep it. When the work is done or unwanted before it ran, say so with
// [Type.CompleteTx] or [Type.CancelTx] in the transaction that made it so; an entry that is dead by then takes it as well,
// unless its compensation has begun.
//
// # Running and stopping
//
// [Compensator.Run] works entries off until its context ends and returns when what it had begun is stored. A
// process that only records never calls it. Any number of processes may run on one database; claims decide.
//
// # Without Redis
//
// With Config.Redis nil the queue is a timing wheel in this process, which knows the entries recorded here;
// those of other processes are found by polling, every Config.PollInterval. With Redis, losing it costs
// latency and nothing else: the database is polled until it is back, and then the queue is rebuilt.
//
// # Time
//
// An entry is due by the database's clock. No instant ever crosses from one clock to another, only remaining
// durations, rounded up, so a wrong clock in a process or in Redis makes entries late, never early. Only
// Options.At depends on this process's clock.
//
// # Caveats
//
//   - There is no order between entries, beyond earliest due first as a rule.
//   - What a handler does outside this database cannot be undone by a fence: a process that is paused for
//     longer than its lease may act after somebody else has taken the entry over.
//   - Idempotent ids guard as long as entries are kept: see [Compensator.Purge].
//   - DDL inside a transaction commits it, and its entries with it.
//   - Everything rests on a database that keeps what it has acknowledged: innodb_flush_log_at_trx_commit=1,
//     no failover to a replica that lags.
package compensator
