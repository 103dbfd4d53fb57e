// Package order holds that entries of a serial type run one at a time for each key, in the order of their ids, and that
// none of them waits for ever (G30).
package order
