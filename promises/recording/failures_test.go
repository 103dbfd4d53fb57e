// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Ids and idempotency keys
//
// F13: Auto-increment ids step, interleave, commit out of order, or exceed what a float holds.
// Result: Receipts name the right ids. A late entry with a low id is found.
//
// F14: Auto-increment is set back, or the column is full.
// Result: A stale queue member never runs the new row. After the last id `Record` fails, and Commit refuses.
// Action: Watch the ids of your table: the library has no alert for them.
//
// F15: Two keys or batch ids only look alike, or a text is too long or invalid.
// Result: Keys are equal byte by byte. A bad text is refused before the server could change it. `New` refuses tables
// and sessions that mix keys up.
// Action: Use the table that `Migrate` makes.
//
// F16: A key is recorded again: in one batch, behind an old snapshot, or by several producers at once.
// Result: It is a duplicate and changes nothing, or your transaction gets `ErrTxAborted`. Producers wait for each
// other, and the library causes no deadlock.
// Action: After `ErrTxAborted`, run the transaction again.
//
// F17: A key comes again with other content, or for another type.
// Result: The receipt reports other content, and `RefuseOtherContent` refuses it. Another type is an error that names
// both types, and Commit refuses. Outside `InTx`, a plain pool cannot refuse.
// Action: Use one key for one event of one type.
//
// F18: A key comes again after its entry was purged.
// Result: It is a new entry: nothing remembers the old one.
// Action: Set `Keep` longer than events can come again.

package recording
