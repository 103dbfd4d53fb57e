// Package leases holds what becomes of an entry whose process is slow, stuck or dead: renewals, answers that come after
// the lease, handlers that never return, and that each lease is counted once and only against whom it concerns (G7, G8,
// G16).
package leases
