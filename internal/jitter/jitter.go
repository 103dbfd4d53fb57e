// Package jitter provides random delays, so that instances do not act at the same moment.
package jitter

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

var seeded atomic.Pointer[uint64]

// N returns a uniformly random duration in [0, n). It panics if n <= 0.
func N(n time.Duration) time.Duration {
	seed := seeded.Load()
	if seed == nil {
		return rand.N(n)
	}
	now := uint64(time.Now().UnixNano())
	return time.Duration(rand.New(rand.NewPCG(*seed, now)).Int64N(int64(n)))
}

// Exponential returns a schedule with full jitter (M. Brooker, "Exponential Backoff And Jitter", 2015). The wait is
// random, between zero and base·2^(failures−1), but at most limit.
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

// Seed makes N deterministic: its results depend only on the seed, the current time and n. Simulations in a
// testing/synctest bubble need this, because they cannot control the order in which goroutines run at one moment.
func Seed(seed uint64) { seeded.Store(&seed) }

// Unseed ends the effect of Seed. The function N then returns random durations again.
func Unseed() { seeded.Store(nil) }
