// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Ordering keys
//
// F112: Many producers record entries of one ordering key.
// Result: The entries run one at a time, in the order of ids and calls.
//
// F113: The first entry of a key waits, is compensated, is dead, or has lost its lease.
// Result: Later entries of the key are blocked. With `PassDead` they run after a dead one.
// Action: Decide about dead entries.
//
// F114: An entry of a key is cancelled or erased, or its row in the ordering table is missing.
// Result: A cancelled entry blocks no other. An erased dead entry blocks later entries until a person or a service ends
// it. A missing row is written at the claim.
// Action: Declare the type in each process that records it.
//
// F115: The process that must wake the next entry dies.
// Result: A round of the reconciler finds the next entry, 12 s later by default.
//
// F116: The ordering table is missing, `Serial` panics, or the store refuses a write.
// Result: The type or the entry is refused. Meanwhile no entry of the key runs.
// Action: Run `Migrate`.
//
// F117: A long backlog has few keys.
// Result: Blocked entries are not claimed. Other types cost as much as before.

package order
