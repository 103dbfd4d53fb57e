// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Ids and idempotency keys
//
// F13: Auto-increment ids have gaps, commit out of order, or are larger than a float can hold.
// Result: Receipts have the correct ids. A late commit with a low id is found.
//
// F14: Auto-increment is set back, or the column is full.
// Result: If a new row gets the id of a lost row that the queue still has, the new row runs once, at its own due time.
// When the column is full, `Record` fails, and Commit refuses.
// Action: Watch the ids of your table.
//
// F15: Two keys or batch ids look alike, or a text is too long or invalid.
// Result: Keys are compared byte by byte. The library refuses bad texts, tables and sessions.
// Action: Use the table that `Migrate` makes.
//
// F16: A key is recorded again: in one batch, in a transaction with an old snapshot, or by several producers at once.
// Result: The second entry changes nothing, or your transaction gets `ErrTxAborted`. Producers wait without a
// deadlock.
// Action: After `ErrTxAborted`, run the transaction again.
//
// F17: A key comes again with other content, or for another type.
// Result: The receipt reports other content, and `RefuseOtherContent` refuses it. Another type is an error, and
// Commit refuses, except on a plain pool outside `InTx`.
// Action: Use one key for one event of one type.
//
// F18: A key comes again after its entry was purged.
// Result: The key makes a new entry.
// Action: Set `Keep` longer than the time after which an event may come again.

package recording
