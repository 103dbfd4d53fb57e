// Package running tests how the library calls a handler and what the handler's result means (G5, G6, G7, G16, G25, G26,
// G27).
package running
