// Package stopping holds the end of a process: stopped in order it loses nothing (G15), and killed or frozen at any point
// it loses no more than its lease (G1, G5).
package stopping
