// Package jitter draws the random waits that keep instances from doing the same thing at the same moment.
package jitter

import (
	"math/rand/v2"
	"sync"
	"time"
)

var seeded struct {
	mu     sync.Mutex // guards source
	source *rand.Rand // nil: the runtime's
}

// N draws a duration in [0, n), evenly. It panics unless n > 0.
func N(n time.Duration) time.Duration {
	seeded.mu.Lock()
	defer seeded.mu.Unlock()
	if seeded.source == nil {
		return rand.N(n)
	}
	return time.Duration(seeded.source.Int64N(int64(n)))
}

// Seed makes every N of this process repeat what it drew after an earlier Seed of the same number, for
// simulations. Unseed ends that.
func Seed(seed uint64) {
	seeded.mu.Lock()
	defer seeded.mu.Unlock()
	seeded.source = rand.New(rand.NewPCG(seed, seed))
}

// Unseed makes N unpredictable again, as it is from the start.
func Unseed() {
	seeded.mu.Lock()
	defer seeded.mu.Unlock()
	seeded.source = nil
}
