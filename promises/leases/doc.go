// Package leases tests what happens to an entry whose process is slow, stuck or dead (G7, G8, G16). It covers renewals,
// outcomes that come after the lease, and handlers that never return. Each lost lease must be counted once, and only
// for the entry that was leased.
package leases
