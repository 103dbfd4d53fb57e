// Package sim runs random histories of several instances of the production engine in one testing/synctest bubble. The
// instances share one store and one queue in memory.
//
// Every statement and every script is a step of a scheduler. The seed decides when each step runs, which steps fail and
// how, and which instance dies when. It also decides what handlers, producers and people do. An oracle asserts the
// promises at every transition of a row and at every attempt.
//
// After some time all faults end; this is called the healing. From then on every entry must come to rest: it has ended
// or waits for a person, and has no lease. A calm seed has no faults, so no entry may be late.
//
// A property that was added later draws from a separate random stream, for example batchesStream. So it does not change
// the random numbers of the other properties, and older seeds do what they did before.
//
// A seed always replays in the same way, except if the runtime of a busy machine interrupts a goroutine.
// TestSameSeedWalksTheSameWay checks this. docs/internals/reliability.md says more, and sim_test.go says how to run a
// seed.
package sim
