// Package commits tests what the end of a transaction means for the entries that it recorded:
//
//   - Committed entries run, however late the commit is and whichever code sends it. They also run if the answer to the
//     commit is lost (G1).
//   - Entries that were rolled back leave no trace (G2).
//   - The commit does not wait for the queue or for handlers (G10, G14).
//   - A caller can find out the result of a commit whose answer was lost.
package commits
