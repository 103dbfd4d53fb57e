// Package history holds that a database that has gone back is noticed, and that nothing is taken for a loss that is none
// (G19).
package history
