// Package history tests that the library notices a database that has gone back to an earlier state. See promise G19 in
// docs/reference/guarantees.md.
package history
