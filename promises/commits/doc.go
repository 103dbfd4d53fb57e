// Package commits tests what the end of a transaction means for the entries that were recorded in the transaction. See
// promises G1, G2, G10 and G14 in docs/reference/guarantees.md.
package commits
