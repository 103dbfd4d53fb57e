// Package commits tests what the end of a transaction means for the entries that were recorded in it:
//
//   - Committed entries run, also if the commit comes late, is sent by other code, or its answer is lost (G1).
//   - Entries that were rolled back leave no trace (G2).
//   - The commit does not wait for the queue or for handlers (G10, G14).
//   - If the answer to a commit was lost, the caller can find out whether it happened.
package commits
