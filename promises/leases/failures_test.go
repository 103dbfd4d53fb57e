// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Time, leases and crashes
//
// F51: A process is frozen for longer than its lease, and continues.
// Result: Its failures are dropped, and its transactional effects rolled back. Its success counts if the entry has
// not ended.
// Action: Send `Entry.CallKey()` with each call, because a frozen handler may still act outside the database.
//
// F52: A handler runs for longer than its lease.
// Result: The lease is renewed until the type's `Timeout`. A lost lease ends the context with `ErrLeaseLost`.
// Action: Leave a connection for renewals.
//
// F53: Clocks of processes, database and Redis differ.
// Result: No entry starts early by the database's clock. Only `Options.At` uses a process's clock. No test changes
// the machine's clock.
//
// F54: A schedule, a delay, a verdict or a limit is zero, negative, or lasts for centuries.
// Result: Waits are kept between 100 ms and 100 years. If `Options.MaxAttempts` is 0, the entry has the `MaxAttempts`
// of its type.
//
// F55: Thousands of entries come due at once.
// Result: A process claims no more entries than it can run. The library does not spread them in time.
//
// F56: The queue has an entry twice, or still has an entry that has ended. Or the lease of an entry in the queue has
// ended.
// Result: The entry runs once. The entries behind it run on time.
//
// F57: A person requeues an entry while its old attempt runs.
// Result: The new attempt keeps its lease and continues.
//
// F58: The database takes claims but no outcomes, or stops for longer than a lease.
// Result: Outcomes wait in their process, which stores them before it claims entries. After three lost leases, an entry
// is dead only if one more lease ends. Until then, a success that waits can still be stored.
//
// F59: The answer to a claim, or the read of a new entry, is lost or late.
// Result: No handler starts after its lease has ended. If the process gives the lease back, the lease does not count as
// lost.
//
// F60: A handler returns `Snooze` or `Unavailable` again and again, or the content of an entry cannot be decoded.
// Result: The waits grow to two minutes and cost no attempt. After `MaxWait` each further wait counts as a failure.
// Action: Set `MaxWait`.
//
// F61: A handler kills its process, again and again.
// Result: An entry that lost a lease runs beside few others, then alone. After three crashes it is dead, or
// compensated with `CompensateCrashed`.
// Action: Correct the handler and requeue the entry. If several handlers kill processes, other entries may lose a
// lease, too. See promise G17.
//
// F62: A handler never returns.
// Result: `Observer.Stuck` and `Health` name the handler. Another process runs the entry, or it is dead after three
// leases.
// Action: Make handlers obey their context.

package leases
