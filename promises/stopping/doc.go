// Package stopping tests the end of a process, by a signal, a kill or a freeze (G1, G5, G15).
package stopping
