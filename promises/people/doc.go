// Package people tests the actions of people and services, and what they can see:
//
//   - Manual actions work alone and while attempts run (G3, G4, G13).
//   - Manual actions leave records in the audit log.
//   - Entries can be read back, and Health and the log report problems.
package people
