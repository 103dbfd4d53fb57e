// Package compensation tests what follows an exhausted entry (G12):
//
//   - The compensation begins after the log has stored that the entry is exhausted.
//   - The compensation has a separate maximum of attempts.
//   - A compensation in your own transaction takes effect once. Any other compensation may run more than once.
package compensation
