// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Ordering keys
//
// F112: Many producers record entries of one ordering key.
// Result: They run one at a time, in the order of ids and calls. An entry that commits late runs beside none.
//
// F113: The first of a key waits, compensates, is dead, or lost its lease.
// Result: Those behind are blocked. `PassDead` passes a dead one.
// Action: Decide about dead entries.
//
// F114: An entry of a key is cancelled, erased, or has no note of its key.
// Result: It leaves its position, an erased one once it has ended. A missing note is written at the claim.
// Action: Declare the type wherever it is recorded.
//
// F115: The process that must wake the next entry dies.
// Result: The round finds it, 12 s later by default.
//
// F116: The table is missing, `Serial` panics, or the store refuses.
// Result: Type or entry is refused. Claims rest meanwhile.
// Action: Migrate.
//
// F117: A long backlog has few keys.
// Result: Blocked entries are not claimed. Other types pay nothing.

package order
