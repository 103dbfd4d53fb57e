// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Start, stop and health
//
// F80: The process is asked to stop.
// Result: Outcomes are stored, and other entries are released. No handler starts afterwards. Interrupted attempts do
// not count.
//
// F81: A handler, server or consumer does not end. Or the configuration of package `serve` lacks a log, a server or a
// consumer.
// Result: `*StuckError` names the handlers that do not end. The library stores a late success. `serve` names what is
// missing before anything runs.
//
// F82: A process, the database or Redis is killed or does not answer.
// Result: No committed entry is lost, and no failure counts. Processes later work off the backlog.
//
// F83: `Run`, its stop and `Close` come in any order, or pools are very small.
// Result: Each call returns, and no goroutine remains. A second `Run` is refused.
//
// F84: No process enqueued an entry, or several processes could enqueue it.
// Result: One process enqueues the entries of all processes. Polling finds entries that nobody has enqueued.
//
// F85: A part of the library fails in the background.
// Result: `Health` names the failure until the part works. Backlogs, breakers and a silent Redis make no process
// unready.
// Action: Alert on `Health`.
//
// F86: The labels of the core's events might grow without limit.
// Result: Events have ids and types as labels, and nothing else. No test checks this, only the review of each change.

package stopping
