// Package periodic tests that each slot of a periodic type gets exactly one entry, from any running process. See
// promise G23 in docs/reference/guarantees.md.
package periodic
