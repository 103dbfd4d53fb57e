// Package leases tests what happens to an entry whose process is slow, stuck or dead. See promises G7, G8 and G16 in
// docs/reference/guarantees.md.
package leases
