// Package servers tests the promises on different servers and sessions. See conditions C1 and C6 in
// docs/reference/guarantees.md.
package servers
