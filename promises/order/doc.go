// Package order tests that entries of a serial type run one at a time for each ordering key, in the order in which they
// were recorded. See promise G30 in docs/reference/guarantees.md.
package order
