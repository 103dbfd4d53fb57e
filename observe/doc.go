// Package observe describes what the library reports about itself. An [Observer] is called at every step, for metrics
// and traces. A [Health] answers a readiness probe and tells an operator what is wrong.
//
// An Observer goes into Config.Observer of the root package, and Compensator.Health returns a Health.
// docs/how-to/health.md says what to do about each problem.
package observe
