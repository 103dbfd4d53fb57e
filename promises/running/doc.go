// Package running tests how the library calls a handler and what the handler's result means. See promises G5, G6, G7,
// G16, G25, G26 and G27 in docs/reference/guarantees.md.
package running
