// Package verdict judges a chaos run by its history, and by nothing else: it knows the table's contract as data of
// its own (moves.go) and shares no code with the library.
//
// Load reads a run into a Ledger: each entry with its steps, which the audit triggers wrote, and its attempts,
// which the handlers did. Judge runs every check over it. A check that looked at nothing has shown nothing: see
// vacuity.go.
package verdict
