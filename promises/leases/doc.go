// Package leases tests what happens to an entry whose process is slow, stuck or dead (G7, no false exhaustion; G8, a
// success is stored; G16, repetitions are counted). It covers renewals, outcomes that come after the lease, and
// handlers that never return. Each lost lease must be counted once, and only for the entry that was leased.
package leases
