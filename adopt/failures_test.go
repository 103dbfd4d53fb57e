// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Old tables and foreign rows
//
// F109: An import is killed, or runs beside the old system.
// Result: Each row, or each event that several rows share, becomes one entry. Locked rows are skipped.
//
// F110: A row cannot become an entry, or `Take` does not change the row.
// Result: The report names the row, and other rows are imported. A `Take` without effect is refused.
// Action: Correct the row or the mapping.
//
// F111: Plain SQL records or cancels an entry, with correct or wrong values.
// Result: Correct rows run. An invalid row is named and stops no other row.
// Action: Use the procedure of docs/how-to/record-by-sql.md.

package adopt
