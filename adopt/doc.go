// Package adopt imports the rows of a hand-made process-log table into the library's log. Services may go on writing to
// the old table during the import. Every old row becomes exactly one entry. docs/how-to/move-from-your-own-table.md shows
// each step.
//
// # One transaction per page
//
// The Config for [Open] names the table, selects its rows (Config.Where) and makes an entry of each row (Config.Map). A
// pass goes through the table in pages, in the order of the primary key. For each page, one transaction locks the rows
// and records their entries. It also updates the rows as Config.Take says, so that the old scanner ignores them. A pass
// skips rows that another transaction has locked, and the next pass takes them.
//
// The idempotency key of a row's entry consists of Config.Name and the row's key. So you may kill a pass at any point, run
// it again, and run it in several processes at once.
//
// [Import.DryRun] makes a pass and rolls each page back. Its report says what would be recorded, skipped and refused, and
// why. [Import.Once] makes one pass. [Import.Run] repeats passes as long as old services still write.
//
// # Refused rows
//
// A row is refused if Map returns an error or panics, or if the log does not accept its entry. The report and
// Config.Logger name the row, and the row stays unchanged. Other rows are imported. With Config.StopAtRefusal the pass
// ends.
//
// # What is not guaranteed
//
// Package adopt does not guarantee that the old system has finished with a row. The old system may run the row without a
// lock on it. To prevent this, set Config.Where and Config.Take together, or stop the old scanner.
//
// A table on another server, or in another database engine, cannot take part in the transaction. For such a table write a
// Source of package intake, which takes about twenty lines.
package adopt
