// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Isolation and locks
//
// F22: Plain reads come from a lagging replica, or Redis knows an id that is not committed.
// Result: The claim decides on the primary. Nothing runs twice, and no attempt is counted.
// Action: Lead the library to the primary (condition C2).
//
// F23: The default isolation is REPEATABLE READ or SERIALIZABLE, or snapshots are isolated.
// Result: The library's transactions are READ COMMITTED. A handler that lost its fence is rolled back and runs again.
//
// F24: Several services change one entry at once.
// Result: Exactly one wins. The others see the true state.
// Action: Branch on the error.
//
// F25: Two databases share one Redis prefix.
// Result: `New` refuses the second. A process whose prefix was taken over polls its database.
// Action: Give each log a prefix. A byte-for-byte copy with its own Redis cannot be recognised.
//
// F26: Statements of the library and of producers meet, or a purge meets a key that is recorded again.
// Result: Producers do not wait for the library's statements, and no deadlock names one. The purge passes by.
//
// F27: Somebody holds the row of an entry.
// Result: Other rows go on. The held row follows later, and its handler is not repeated. When its lease ends first,
// the handler's context ends.
// Action: Keep transactions that change entries short, in ascending order of id.
//
// F28: A handler works for long in its transaction.
// Result: Its entry is not locked meanwhile. An ALTER waits at most for the type's `Timeout`.
//
// F29: The table is large, statistics are stale, or deleted records pile up.
// Result: Every statement keeps to its index range, without a sort.
//
// F30: A lock on the whole table, or a server that does not answer.
// Result: Under locks the process holds at most eight sessions. Statements end by themselves, and every entry ends
// once afterwards.
// Action: Unblock the server. One that is silent without a lock has no such bound.

package neighbours
