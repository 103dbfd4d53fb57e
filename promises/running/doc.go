// Package running holds what a handler meets and what its answer means: errors, panics, timeouts and verdicts of plain,
// transactional and batch handlers (G5, G6, G7), what a batch that breaks costs its entries (G16), what a
// type does while what its handler calls is down (G25), and the values that travel with an entry.
package running
