// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Time, leases and crashes
//
// F51: A process is frozen beyond its lease and comes back.
// Result: Its failures are dropped, and its transactional effects rolled back. A success counts while the entry is on
// its way.
// Action: Give `Entry.CallKey()` to what you call: outside the database a frozen handler may still act.
//
// F52: A handler outlives its lease.
// Result: The lease is renewed until the type's `Timeout`. A lost lease ends the context with `ErrLeaseLost`.
// Action: Leave a connection for renewals. On SQLite and small pools the lease is raised above the `Timeout`.
//
// F53: Clocks of processes, database and Redis differ.
// Result: Only `Options.At` uses a process's clock. No entry is early by the database's. No test steps the machine's
// own clock.
//
// F54: A schedule, delay, verdict or limit is zero, negative, or centuries.
// Result: Waits stay between 100 ms and 100 years. `MaxAttempts` 0 means the type's. A lowered limit leaves one more
// attempt.
//
// F55: Thousands of entries come due at once.
// Result: No more are claimed than can run, so memory is bounded. There is no jitter per entry.
//
// F56: The queue has an entry twice, after its end, or with an ended lease.
// Result: The entry runs once. Those behind it run on time.
//
// F57: A person requeues an entry while its old attempt runs.
// Result: The new attempt keeps its lease and goes on.
//
// F58: The database takes claims but no outcomes, or stops for longer than a lease.
// Result: Outcomes wait and come before new claims. An entry is not dead-lettered before a waiting success had one
// more lease.
//
// F59: The answer to a claim, or the read of a new entry, is lost or late.
// Result: Nothing starts under an ended lease. The lease is given back and not counted.
//
// F60: A handler waits without end by `Snooze` or `Unavailable`, or its content cannot be decoded.
// Result: Waits grow to two minutes and spend nothing. After the type's `MaxWait` each counts as a failure, also in a
// compensation.
// Action: Set `MaxWait`.
//
// F61: A handler ends its process, again and again.
// Result: Entries that lost a lease run among few, then alone. After three crashes the entry is dead, or compensates
// with `CompensateCrashed`. No failure is counted.
// Action: Correct the handler and requeue. Several such entries may cost innocent ones a lease
// (G17).
//
// F62: A handler never returns.
// Result: `Observer.Stuck` and `Health` name it, and renewal ends. Another process runs the entry, or it is dead after
// three leases. A success before that counts.
// Action: Make handlers obey their context.

package leases
