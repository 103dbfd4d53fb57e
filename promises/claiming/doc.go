// Package claiming tests when an entry is claimed and by which process. See promises G1, G9, G10, G16, G17 and G18 in
// docs/reference/guarantees.md.
package claiming
