// Package limits tests what TypeConfig.Limit promises over all processes:
//
//   - In every window of time no more starts are granted than the rate and the burst allow (G41).
//   - Never more entries than Concurrent hold a permit, and the permits of a dead process come back (G41).
//   - Entries that wait cost no attempt and no lease, and hold up no entries of other keys.
package limits
