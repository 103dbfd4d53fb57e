// Package verdict judges a chaos run by its history alone. It holds the table's contract as its own data (moves.go) and
// shares no code with the library.
//
// Load reads a run into a Ledger. The Ledger holds each entry with its steps, from the audit triggers, and its
// attempts, from the handlers. Judge runs every check over the Ledger. A check that found no case proves nothing: see
// vacuity.go.
package verdict
