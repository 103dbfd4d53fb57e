package sim

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/compensator-go/compensator"
)

const barrierPrefix = "barrier-"

type barrier struct {
	slots map[string]int

	mu     sync.Mutex // guards the fields below it
	inside map[string]int
	peak   map[string]int
	opened map[string]chan struct{}
}

func newBarrier(slots func(businessType string) int) *barrier {
	b := &barrier{slots: make(map[string]int), inside: make(map[string]int), peak: make(map[string]int), opened: make(map[string]chan struct{})}
	for _, t := range handledTypes {
		b.opened[t], b.slots[t] = make(chan struct{}), slots(t)
	}
	return b
}

// If ctx ends first, wait returns an error, and the handler's entry runs again later.
func (b *barrier) wait(ctx context.Context, businessType string) error {
	b.add(businessType, 1)
	defer b.add(businessType, -1)
	select {
	case <-b.opened[businessType]:
		return nil
	case <-ctx.Done():
		return compensator.Snooze(50 * time.Millisecond)
	}
}

func (b *barrier) add(businessType string, calls int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.peak[businessType]
	b.inside[businessType] += calls
	b.peak[businessType] = max(before, b.inside[businessType])
	if slots := b.slots[businessType]; before < slots && b.peak[businessType] >= slots {
		close(b.opened[businessType])
	}
}

func (b *barrier) highestCounts() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.peak)
}

func (b *barrier) full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range handledTypes {
		if b.peak[t] < b.slots[t] {
			return false
		}
	}
	return true
}
