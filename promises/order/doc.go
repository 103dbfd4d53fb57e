// Package order holds that entries of a serial type run one at a time for each key, in the order in which they were recorded, and that
// none of them waits for ever (G30).
package order
