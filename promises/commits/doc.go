// Package commits tests what the end of a transaction means for the entries in it:
//
//   - Committed entries run, however late the commit is and however it is sent, even if its answer is lost (G1).
//   - Entries that were rolled back leave no trace (G2).
//   - The commit does not wait for the queue or for handlers (G10, G14).
//   - A commit with an unknown result can be resolved.
package commits
