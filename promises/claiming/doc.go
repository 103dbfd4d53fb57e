// Package claiming tests when an entry is claimed, and by which process:
//
//   - An entry is never claimed early (G9) and only by one process (G16).
//   - An entry is found even if it was never enqueued (G1), and ids that the queue invents do no harm (G10).
//   - Locked, slow, unknown or stuck entries hold up no other entries (G17, G18).
//   - An idle process sends hardly any statements.
package claiming
