// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Time, leases and crashes
//
// F51: A process is frozen for longer than its lease, and continues.
// Result: Its failures are dropped, and its transactional effects are rolled back. Its success counts if the entry has
// not ended.
// Action: Send `Entry.CallKey()` with each call, because a frozen handler may still act outside the database.
//
// F52: A handler runs for longer than its lease.
// Result: The lease is renewed until the type's `Timeout`. A lost lease ends the context with `ErrLeaseLost`.
// Action: Leave a connection for renewals. On SQLite and small pools the library makes the lease longer than the
// `Timeout`.
//
// F53: Clocks of processes, database and Redis differ.
// Result: Only `Options.At` uses a process's clock. No entry starts early by the database's clock. No test changes the
// machine's own clock.
//
// F54: A schedule, a delay, a verdict or a limit is zero, negative, or lasts for centuries.
// Result: Waits are kept between 100 ms and 100 years. A `MaxAttempts` of 0 means that of the type. If the limit is
// lowered below the failures so far, the entry has one more attempt.
//
// F55: Thousands of entries come due at once.
// Result: A process claims no more entries than it can run, so its memory is bounded. The library does not spread such
// entries in time.
//
// F56: The queue has an entry twice, has it after its end, or has it with a lease that has ended.
// Result: The entry runs once. The entries after it run on time.
//
// F57: A person requeues an entry while its old attempt runs.
// Result: The new attempt keeps its lease and continues.
//
// F58: The database takes claims but no outcomes, or stops for longer than a lease.
// Result: Outcomes wait, and are stored before new claims. An entry is dead-lettered only after a waiting success has
// had one more lease.
//
// F59: The answer to a claim, or the read of a new entry, is lost or late.
// Result: No handler starts after its lease has ended. The lease is released and not counted.
//
// F60: A handler returns `Snooze` or `Unavailable` again and again, or its content cannot be decoded.
// Result: The waits grow to two minutes and cost no attempt. When the entry is older than the type's `MaxWait`, each
// of them counts as a failure, also in a compensation.
// Action: Set `MaxWait`.
//
// F61: A handler kills its process, again and again.
// Result: An entry that lost a lease runs beside few others, then alone. After three crashes the entry is dead, or it
// is compensated if `CompensateCrashed` is set. No failure is counted.
// Action: Correct the handler and requeue the entry. Several such entries may cost innocent entries a lease (G17).
//
// F62: A handler never returns.
// Result: `Observer.Stuck` and `Health` name the handler, and its lease is no longer renewed. Another process runs the
// entry, or the entry is dead after three leases. If the handler succeeds before that, its success counts.
// Action: Make handlers obey their context.

package leases
