// Package observe holds what the library says of itself: [Observer] is told what happens, for metrics and traces, and [Health]
// is what a readiness probe and whoever is paged want to know.
//
// The root package has the same types under the same names: an Observer goes into Config.Observer, and a Health comes from
// Compensator.Health. What to do about what they say stands in docs/operations.md.
package observe
