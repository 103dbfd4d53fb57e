// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Old tables and foreign rows
//
// F109: An import is killed, or runs beside the old system.
// Result: Each row, or each shared event, becomes one entry. Held rows are passed over.
//
// F110: A row cannot be taken, or the Take changes nothing.
// Result: The row is named, and others go on. Such a Take is refused. A dry run changes nothing.
// Action: Correct the row or the mapping.
//
// F111: Plain SQL records or cancels an entry, rightly or wrongly.
// Result: Right rows run. An invalid row stops no other and is named.
// Action: Use the procedure of docs/how-to/record-by-sql.md.

package adopt
