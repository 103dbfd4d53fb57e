// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Periodic types and keeping
//
// F102: Processes that record slots are killed, stopped or do not run.
// Result: Each slot has one entry. Of the missed slots, the newest `CatchUp` get entries.
// Action: Choose `CatchUp`.
//
// F103: Clocks skip or repeat an hour, or are changed.
// Result: Each slot is found once, by the database's clock.
//
// F104: Entries of slots, or the row of the last slot, are deleted. Or another entry has the id of a slot.
// Result: A purged slot gets no second entry. If the row of the last slot is missing, the type begins again like a new
// type. Later slots get entries.
// Action: Do not delete the rows of types.
//
// F105: The table of slots is missing, or a schedule is wrong.
// Result: `Periodic` returns an error, or `Health` names the failure.
// Action: Migrate, or correct the schedule.
//
// F106: While the library purges old entries, the database is under load, rows are locked, or the database refuses to
// delete an entry.
// Result: `Keep` purges in small steps, and leaves dead and manually settled entries. `Health` names an entry that the
// database refuses to delete.
// Action: Remove the foreign key.

package periodic
