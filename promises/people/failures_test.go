// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Cases and people
//
// F118: An entry dies, with its case lost, late, or without an amount.
// Result: Each death has one open case. Maintenance adds missing ones. No amount is made up.
//
// F119: The outcome of an attempt is unknown.
// Result: Its case says so. Package, command line and pages ask for a confirmation first.
// Action: Check with the partner.
//
// F120: Two people act at once, on a stale page, or twice.
// Result: Exactly one succeeds, on the version that he saw. The others get an error that says what changed.
// Action: Look again.
//
// F121: The record of an action cannot be written.
// Result: Action and record are both there or both absent.
//
// F122: Somebody lacks a right, by type, amount or at all.
// Result: He finds no trace: in lists, pages, sums, searches or errors.
// Action: Grant the right.
//
// F123: The operator's side is off, or its tables are missing.
// Result: Entries cost the same statements. Missing tables are named.
// Action: Migrate with `Operations`.
//
// F124: A type is paused, or its name mistyped.
// Result: Nobody claims it until it is resumed. An unused name needs a confirmation.
//
// F125: Errors hold secrets, or differ only in numbers and ids.
// Result: The scrubber removes cards, addresses and passwords. Alike errors form one group.
// Action: Add your own rule.
//
// F126: Entries must be erased, or kept.
// Result: Erasure clears content, headers, errors, names and reasons. The key still guards. An entry on its way is not
// erased. A purge leaves dead entries that wait for somebody.
//
// F127: Many people look at a slow log.
// Result: Reads are four at a time and end after two seconds. Actions do not wait.

package people
