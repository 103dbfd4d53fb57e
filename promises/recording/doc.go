// Package recording tests what Record promises before its transaction ends. See promises G2 and G11 in
// docs/reference/guarantees.md.
package recording
