// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Start, stop and health
//
// F80: The process is asked to stop.
// Result: Outcomes of finished work are stored, and all other entries are released at once. No handler starts
// afterwards. Interrupted attempts are not counted.
//
// F81: A handler, server or consumer does not end, or the program lacks a part.
// Result: `*StuckError` names the handlers. If one succeeds late, its success is stored. Missing parts are named
// before anything runs.
//
// F82: A process, the database or Redis is killed or does not answer.
// Result: No committed entry is lost, and no failure is counted. Processes ask rarely meanwhile, and then work off the
// backlog.
//
// F83: `Run`, its stop and `Close` come in any order, or pools are very small.
// Result: Each call returns, no goroutine remains, and the entries are run. A second `Run` is refused.
//
// F84: No process enqueued an entry, or several processes could enqueue it.
// Result: One process enqueues for all. Polling finds the other entries.
//
// F85: A part of the library fails in the background.
// Result: The log has one warning, and `Health` names the failure until the part works. Backlogs, breakers and a
// silent Redis make no process unready.
// Action: Alert on `Health`.
//
// F86: The labels of the core's events might grow without limit.
// Result: Events carry ids and types only. That is by review: no test.

package stopping
