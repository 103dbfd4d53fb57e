// Package adopt takes the rows of a process-log table that somebody made manually into the log, while the services that write
// that table go on: every old row becomes exactly one entry. docs/from-your-own-table.md walks through it.
//
// # A page, one transaction
//
// [Open] says which table, which of its rows (Config.Where), and what entry each becomes (Config.Map). A pass goes through the
// table in pages, by its primary key. One transaction locks a page's rows, records their entries, and changes the rows as
// Config.Take says, so that the old scanner leaves them alone: all of that, or nothing. Rows that somebody holds locked are
// passed over, and taken the next time.
//
// No position is remembered, because a row with a lower key may be committed later. What keeps a row from a second entry is its
// idempotency key, made of Config.Name and the row's key, and, with Config.Take, that Config.Where finds it no more. So a pass may
// be killed at any point, run again, and run in several processes at once.
//
// [Import.DryRun] does all that and rolls each page back: its report says what would be recorded, skipped and refused, and why.
// [Import.Once] is a pass. [Import.Run] makes pass after pass, for as long as old services still write.
//
// # Rows that are refused
//
// A row for which Map has an error, or panics, or whose entry the log does not take, is named in the report and the log, left
// as it is, and in nobody's way; with Config.StopAtRefusal it ends the pass.
//
// # What is not promised
//
// That the old system is done with a row. It may be running it right now, with no lock to say so: what keeps it from that is
// Config.Where and Config.Take together, or that the old scanner is off. Without Take nothing keeps it from the row at all.
//
// A table on another server, or in another database engine, cannot be part of the transaction: see package intake, whose
// Source is twenty lines.
package adopt
