// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Cases and people
//
// F118: An entry dies. Its case is lost, is opened late, or has no amount.
// Result: Each dead entry has one open case. Maintenance adds missing cases.
//
// F119: The outcome of an attempt is unknown.
// Result: The entry's case says so, and a change needs a confirmation.
// Action: Ask the partner what the attempt did.
//
// F120: Two people act at once, or one person acts twice or on an outdated page.
// Result: One action succeeds, on the version that the person saw. The others learn what has changed.
// Action: Read the entry again.
//
// F121: The record of an action cannot be written.
// Result: Action and record are both there or both absent.
//
// F122: A person lacks a right, for a type, for an amount or in general.
// Result: The person finds no trace of the entry in lists, pages, sums, searches or errors.
// Action: Grant the right.
//
// F123: `Config.Operations` is not set, or its tables are missing.
// Result: Entries cost the same statements as before. `New` names the missing tables.
// Action: Run `Migrate`, and set `Operations`.
//
// F124: A type is paused, or its name is mistyped.
// Result: No process claims its entries until somebody resumes the type. An unknown name needs a confirmation.
//
// F125: Errors have secrets, or differ only in numbers and ids.
// Result: The scrubber removes card numbers, addresses and passwords. Errors that differ only in numbers and ids form
// one group.
// Action: Add your own rule with `Scrub`.
//
// F126: Somebody must erase entries, or keep them.
// Result: `Erase` clears content, headers, errors, names and reasons of an ended entry. The key still prevents a
// second entry. A purge leaves dead entries that wait for a person.
//
// F127: Many people look at a slow log.
// Result: Four reads run at once, and each ends after two seconds. Actions do not wait.

package people
