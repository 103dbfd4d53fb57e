// Package stopping tests the end of a process, by a signal, a kill or a freeze. See promises G1, G5 and G15 in
// docs/reference/guarantees.md.
package stopping
