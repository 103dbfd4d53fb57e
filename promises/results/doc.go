// Package results tests results of handlers (G38), waits for one entry (G39), and calls that end in a transaction (G40).
package results
