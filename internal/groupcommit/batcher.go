// Package groupcommit collects single items into batches. Items that arrive while a batch is being flushed form the
// next batch. Under load one statement writes many items. Pace adds pauses between transactions that would follow each
// other immediately.
//
// A caller of Add continues at once and gets no result, so Flush handles errors itself. The goroutines of a Batcher
// run only while there is work. The owner waits for them with Done, and uses Quiet if one Batcher feeds another.
package groupcommit

import (
	"runtime"
	"sync"
	"time"
)

// Batcher implements group commit.
type Batcher[T any] struct {
	Max     int
	Workers int
	Bound   int // maximum number of waiting items; 0 means no limit
	Flush   func(batch []T)
	Pace    Pace // pauses between flushes that are not full

	mu             sync.Mutex // guards the fields below
	queued         []T
	workersRunning int
	flushed        int
	idle           chan struct{} // closed when no item waits and no flush runs; nil if Done was not called
	fullSignal     chan struct{} // closed when a full batch waits; nil if no worker pauses
}

// Add adds items and returns at once. If the waiting items would then exceed Bound, Add adds no item and returns false.
func (b *Batcher[T]) Add(items ...T) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Bound > 0 && len(b.queued)+len(items) > b.Bound {
		return false
	}
	if b.queued == nil {
		b.queued = make([]T, 0, max(len(items), b.flushed))
	}
	b.queued = append(b.queued, items...)
	if b.fullSignal != nil && len(b.queued) >= b.Max {
		close(b.fullSignal)
		b.fullSignal = nil
	}
	if len(b.queued) > 0 && b.workersRunning < b.Workers {
		b.workersRunning++
		go b.work()
	}
	return true
}

func (b *Batcher[T]) work() {
	for {
		// Take the batch last, so that it includes the items that arrive during gather and keepPace.
		b.gather()
		b.keepPace()
		batch := b.takeBatch()
		if batch == nil {
			return
		}
		began := time.Now()
		b.Flush(batch)
		b.recordDuration(time.Since(began))
	}
}

func (b *Batcher[T]) recordDuration(took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Pace.End(took)
}

// Yield lets other goroutines run. A simulation replaces it before it uses a Batcher, because runtime.Gosched may
// return although other goroutines have not run.
var Yield = runtime.Gosched

const mostYields = 16

// Without gather, when hundreds of handlers return together, the first item would form a batch alone.
func (b *Batcher[T]) gather() {
	sizeBefore := b.Size()
	for range mostYields {
		Yield()
		sizeNow := b.Size()
		if sizeNow == sizeBefore || sizeNow >= b.Max {
			return
		}
		sizeBefore = sizeNow
	}
}

// A batch that becomes full ends the wait.
func (b *Batcher[T]) keepPace() {
	for {
		wait, fullSignal := b.untilPace()
		if wait <= 0 {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-fullSignal:
			timer.Stop()
		}
	}
}

// A full batch does not wait.
func (b *Batcher[T]) untilPace() (time.Duration, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queued) == 0 || len(b.queued) >= b.Max {
		return 0, nil
	}
	wait := time.Until(b.Pace.Next())
	if wait > 0 && b.fullSignal == nil {
		b.fullSignal = make(chan struct{})
	}
	return wait, b.fullSignal
}

// If nothing waits, it returns nil and the worker ends.
func (b *Batcher[T]) takeBatch() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queued) == 0 {
		b.workersRunning--
		if b.workersRunning == 0 && b.idle != nil {
			close(b.idle)
			b.idle = nil
		}
		return nil
	}
	n := min(len(b.queued), b.Max)
	b.flushed = n
	b.Pace.Begin(time.Now()) // The mutex also guards Pace. Begin comes before Flush, because Pace counts from the start of a flush.
	batch := b.queued[:n:n]
	if b.queued = b.queued[n:]; len(b.queued) == 0 {
		b.queued = nil // An idle Batcher must not keep references to flushed items.
	}
	return batch
}

// Size returns the number of items that wait for a flush.
func (b *Batcher[T]) Size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queued)
}

// Quiet reports whether nothing waits and nothing is being flushed.
func (b *Batcher[T]) Quiet() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.workersRunning == 0
}

// Done returns a channel that is closed when nothing waits and nothing is being flushed.
func (b *Batcher[T]) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.idle != nil {
		return b.idle
	}
	idle := make(chan struct{})
	if b.workersRunning == 0 {
		close(idle)
	} else {
		b.idle = idle
	}
	return idle
}
