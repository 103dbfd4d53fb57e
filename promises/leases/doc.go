// Package leases tests what happens to an entry whose process is slow, stuck or dead (G7, G8, G16).
package leases
