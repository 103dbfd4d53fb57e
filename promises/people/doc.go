// Package people tests the manual actions of people and services, and what they can see:
//
//   - Manual actions work while no attempt runs and while attempts run. The promises are G3 (terminal states), G4 (one
//     history) and G13 (epochs).
//   - Manual actions leave records in the audit log.
//   - Entries can be read back. Health and the process's log report problems.
package people
