// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Start, stop and health
//
// F80: The process is asked to stop.
// Result: Finished work is recorded, and the rest is free at once. No handler starts afterwards. Interrupted attempts
// spend nothing.
//
// F81: A handler, server or consumer does not end, or the program lacks a part.
// Result: `*StuckError` names handlers; their late success is stored. Missing parts are named before anything runs.
//
// F82: A process, the database or Redis is killed or away.
// Result: Nothing committed is lost. No failure is counted. Processes ask seldom and catch up.
//
// F83: `Run`, stop and `Close` come in any order, or pools are tiny.
// Result: Each call returns, no goroutine stays, and the work gets done. A second `Run` is refused.
//
// F84: Nobody enqueued an entry, or several processes could.
// Result: One process enqueues for all. Polling finds the rest.
//
// F85: Something fails in silence.
// Result: One warning is logged, and `Health` names it until it works. Backlogs, breakers and a silent Redis make no
// process unready.
// Action: Alert on `Health`.
//
// F86: Labels of the core's events might grow without bound.
// Result: Events carry ids and types only. That is by review: no test.

package stopping
