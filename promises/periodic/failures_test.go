// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Periodic types and keeping
//
// F102: Processes that make slots are killed, stopped or away.
// Result: Each slot has one entry. Of missed slots the newest `CatchUp` are made. A first registration fills nothing
// back.
// Action: Choose `CatchUp`.
//
// F103: Clocks skip or repeat an hour, or jump.
// Result: Each slot is found once, by the database's clock.
//
// F104: Entries or the mark are deleted, or a slot's id is taken.
// Result: A purged slot does not come again. A deleted mark starts afresh, and the log says so. Later slots are made.
// Action: Do not delete marks.
//
// F105: The table of slots is missing, or a schedule is wrong.
// Result: `Periodic` refuses it, or `Health` names it.
// Action: Migrate, or correct the schedule.
//
// F106: Old entries must go under load, locks or refusals.
// Result: `Keep` purges ended entries of handled or declared types in small steps. Dead and manually settled ones
// stay. A refused entry is named and keeps no other.
// Action: Set `Keep` to at least an hour. Remove the foreign key.

package periodic
