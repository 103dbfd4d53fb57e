// Package jitter draws the random waits that keep instances from doing the same thing at the same moment.
package jitter

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// seeded is the seed of a simulation; nil: none.
var seeded atomic.Pointer[uint64]

// N draws a duration in [0, n), evenly. It panics unless n > 0.
func N(n time.Duration) time.Duration {
	seed := seeded.Load()
	if seed == nil {
		return rand.N(n)
	}
	now := uint64(time.Now().UnixNano())
	return time.Duration(rand.New(rand.NewPCG(*seed, now)).Int64N(int64(n)))
}

// Exponential returns a schedule that waits a random time between nothing and base·2^(failures−1), at most limit: full
// jitter, which spreads the retries of a failed downstream best (M. Brooker, "Exponential Backoff And Jitter", 2015).
func Exponential(base, limit time.Duration) func(failures int) time.Duration {
	return func(failures int) time.Duration {
		if base <= 0 || limit <= 0 {
			return 0
		}
		ceiling := base
		for range failures - 1 {
			if ceiling >= limit/2 {
				ceiling = limit
				break
			}
			ceiling *= 2
		}
		return N(min(ceiling, limit) + 1)
	}
}

// Seed makes what N draws depend on the number, the moment and n, and on nothing else, for simulations on the clock of a
// testing/synctest bubble: the order in which goroutines draw at one moment is not theirs to decide. Unseed ends that.
func Seed(seed uint64) { seeded.Store(&seed) }

// Unseed makes N unpredictable again, as it is from the start.
func Unseed() { seeded.Store(nil) }
