// Package running tests how the library calls a handler and what the handler's result means:
//
//   - errors, panics, timeouts and verdicts of plain, transactional and batch handlers (G5, exactly once; G6, no false
//     success; G7, no false exhaustion)
//   - a batch without a verdict, and its entries (G16, repetitions are counted)
//   - a type whose dependency is down (G25, breakers)
//   - context values that travel with an entry
//   - entries that share a batch (G26), and entries that follow a batch (G27)
package running
