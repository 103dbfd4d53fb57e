// Package commits tests what the end of a transaction means for the entries that were recorded in it (G1, G2, G10,
// G14).
package commits
