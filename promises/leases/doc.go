// Package leases tests what happens to an entry whose process is slow, stuck or dead. It covers renewals, outcomes that
// come after the lease, and handlers that never return. Each lost lease must be counted once, and only for the entry
// that was leased. The promises are no false exhaustion (G7), a success is stored (G8), and repetitions are counted
// (G16).
package leases
