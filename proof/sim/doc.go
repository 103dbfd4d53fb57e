// Package sim runs random histories of several instances of the production engine in one testing/synctest bubble. The
// instances share one store and one queue in memory.
//
// Every statement and every script is a step of a scheduler. The seed decides when each step is done, which steps fail
// and how, and which instance dies when. It also decides what handlers, producers and people do. An oracle asserts the
// promises at every transition of a row and at every attempt. Then the simulation ends all faults, and every entry must
// come to rest.
//
// A seed always replays in the same way, except when the runtime of a busy machine interrupts a goroutine.
// TestSameSeedWalksTheSameWay checks this. See docs/internals/reliability.md, and sim_test.go for how to run a seed.
package sim
