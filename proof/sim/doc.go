// Package sim runs random histories of several instances of the production engine in one testing/synctest bubble. The
// instances share one store and one queue in memory. Every statement and every script is a step of a scheduler, and the
// seed decides its order and its faults. An oracle asserts the promises at every transition of a row and at every
// attempt.
//
// After the healing, when all faults have ended, every entry must come to rest: it has ended or waits for a person, and
// has no lease. A calm seed has no faults, so no entry may be late.
//
// A property that was added later draws from a separate random stream, so that older seeds do what they did before. A
// seed always replays in the same way, except if the runtime of a busy machine interrupts a goroutine.
// docs/internals/reliability.md says more.
package sim
