// Package history tests that the library notices a database that has gone back to an earlier state (G19).
package history
