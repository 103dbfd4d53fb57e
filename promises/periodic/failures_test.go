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
// Result: A purged slot gets no second entry. Without its row the type begins again. Later slots get entries.
// Action: Do not delete the rows of types.
//
// F105: The table of slots is missing, or a schedule is wrong.
// Result: `Periodic` returns an error, or `Health` names the failure.
// Action: Migrate, or correct the schedule.
//
// F106: Old entries must be purged beside load, locks or refusals of the database.
// Result: `Keep` purges in small steps, and leaves dead and manually settled entries. An entry that the database
// refuses to delete is named.
// Action: Remove the foreign key.

package periodic
