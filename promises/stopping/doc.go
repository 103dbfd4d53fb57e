// Package stopping tests the end of a process. A process that is asked to stop loses nothing (G15). A process that is
// killed or frozen at any point loses no more than its leases (G1, G5).
package stopping
