// Package verdict judges a chaos run by its history alone. It shares no code with the library. moves.go has a separate
// copy of the rules for changes of a row.
//
// Load reads a run into a Ledger. The audit triggers wrote the steps, and the handlers wrote the attempts. Judge runs
// every check over the Ledger. A check that found no case proves nothing, so a run must meet the demands of vacuity.go.
package verdict
