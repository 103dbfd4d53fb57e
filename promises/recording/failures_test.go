// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Ids and idempotency keys
//
// F13: Auto-increment ids have gaps, interleave, commit out of order, or are larger than a float can hold.
// Result: Receipts have the right ids. An entry with a low id that commits late is found.
//
// F14: Auto-increment is set back, or the column is full.
// Result: An old id in the queue never runs the new row. After the last id `Record` fails, and Commit refuses.
// Action: Watch the ids of your table: the library has no alert for them.
//
// F15: Two keys or batch ids look alike, or a text is too long or invalid.
// Result: Keys are compared byte by byte. The library refuses a bad text before the server can change it. `New`
// refuses tables and sessions that would take different keys for the same key.
// Action: Use the table that `Migrate` makes.
//
// F16: A key is recorded again: in one batch, in a transaction with an old snapshot, or by several producers at once.
// Result: The second entry is a duplicate and changes nothing, or your transaction gets `ErrTxAborted`. Producers of
// the same key wait for each other, and the library causes no deadlock.
// Action: After `ErrTxAborted`, run the transaction again.
//
// F17: A key comes again with other content, or for another type.
// Result: With other content the receipt says so, and `RefuseOtherContent` refuses it. For another type, `Record`
// returns an error that names both types, and Commit refuses. Outside `InTx`, a commit on a plain pool cannot be
// refused.
// Action: Use one key for one event of one type.
//
// F18: A key comes again after its entry was purged.
// Result: It is a new entry, because the library does not remember the purged one.
// Action: Set `Keep` longer than the time after which an event may come again.

package recording
