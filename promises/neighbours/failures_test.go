// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Isolation and locks
//
// F22: Plain reads come from a lagging replica, or Redis knows an id that is not committed.
// Result: The claim on the primary decides. Nothing runs twice, and no attempt is counted.
// Action: Give the library a pool that leads to the primary. Condition C2 demands such a pool.
//
// F23: The server's default isolation is REPEATABLE READ or SERIALIZABLE, or snapshot isolation is on.
// Result: The library's own transactions are READ COMMITTED. A handler whose row has changed is rolled back and runs
// again.
//
// F24: Several services change one entry at once.
// Result: One of them succeeds. The others get the true state of the entry.
// Action: Branch on the error.
//
// F25: Two databases share one Redis prefix.
// Result: `New` refuses the second database. If another log takes over the prefix of a process, the process polls its
// database.
// Action: Give each log a prefix. A byte-for-byte copy with its own Redis cannot be recognised.
//
// F26: Statements of the library and of producers want the same locks, or a producer records a key while a purge
// deletes its entry.
// Result: Producers do not wait for the library. The library causes no deadlock. The purge skips the locked row.
//
// F27: Somebody holds the row of an entry.
// Result: Other entries run. The locked entry follows later, once. The handler's context ends with its lease.
// Action: Keep transactions short, and change entries in ascending order of id.
//
// F28: A transactional handler works for a long time.
// Result: Its entry is not locked. An ALTER TABLE waits at most for the type's `Timeout`.
//
// F29: The table is large, its statistics are out of date, or it has many deleted records.
// Result: Every statement reads only its range of an index, and sorts nothing.
//
// F30: The whole table is locked, or the server does not answer.
// Result: A process has at most eight sessions while a lock holds. Every entry ends once after the lock.
// Action: Unblock the server. Without a lock, the number of sessions has no limit.

package neighbours
