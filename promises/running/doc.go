// Package running tests how the library calls a handler and what the handler's result means:
//
//   - errors, panics, timeouts and verdicts of plain, transactional and batch handlers (G5, G6, G7)
//   - a batch without a verdict, and its entries (G16)
//   - a type whose dependency is down (G25)
//   - context values that travel with an entry
//   - entries that share a batch (G26), and entries that follow a batch (G27)
package running
