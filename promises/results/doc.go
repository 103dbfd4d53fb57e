// Package results tests three promises of docs/reference/guarantees.md. A success and its result are stored together
// (G38). A wait for an entry ends with the entry (G39). The work that follows a call takes effect exactly once (G40).
package results
