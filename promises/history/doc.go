// Package history tests that the library notices a database that has gone back to an earlier state (G19). The library
// must not report a loss where nothing was lost.
package history
