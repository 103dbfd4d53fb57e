// Package history tests that the library notices a database that has gone back to an earlier state. It must not report
// a loss where nothing was lost (G19).
package history
