// Package groupcommit collects single items into batches. Items that arrive while a batch is being flushed form the
// next batch. Under load one statement writes many items. Without load an item is flushed at once: there is no flush
// interval to wait for. Pace adds pauses between transactions that would follow each other immediately. Each such
// transaction has a synced write, and the commits of producers must wait for it.
//
// The engine uses Batchers, and a Pace for its claims. A caller of Add continues at once and gets no result, so Flush
// handles errors itself. The goroutines of a Batcher run only while there is work. The owner waits for them with Done,
// and uses Quiet if one Batcher feeds another. The package knows nothing about its items, entries or databases.
package groupcommit

import (
	"runtime"
	"sync"
	"time"
)

// Batcher implements group commit. Items that arrive while one batch is being flushed form the next batch. If no item
// came for a while, the next one is flushed at once. Goroutines run only while there is work.
type Batcher[T any] struct {
	Max     int // maximum items of a flush
	Workers int // maximum concurrent flushes
	Bound   int // maximum number of waiting items; 0 means no limit, for callers that limit the items themselves
	Flush   func(batch []T)
	Pace    Pace // pauses between flushes that are not full

	mu      sync.Mutex // guards the fields below
	waiting []T
	running int
	flushed int           // number of items in the latest flush
	idle    chan struct{} // closed when no item waits and no flush runs; nil if Done was not called
	full    chan struct{} // closed when a full batch waits; nil if no worker pauses
}

// Add adds items and returns at once. If the waiting items would then exceed Bound, Add adds no item and returns false.
func (b *Batcher[T]) Add(items ...T) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Add all items or none, so that the caller can treat them alike.
	if b.Bound > 0 && len(b.waiting)+len(items) > b.Bound {
		return false
	}
	if b.waiting == nil {
		b.waiting = make([]T, 0, max(len(items), b.flushed)) // Expect as many items as in the latest flush.
	}
	b.waiting = append(b.waiting, items...)
	if b.full != nil && len(b.waiting) >= b.Max {
		close(b.full)
		b.full = nil
	}
	if len(b.waiting) > 0 && b.running < b.Workers {
		b.running++
		go b.work()
	}
	return true
}

func (b *Batcher[T]) work() {
	for {
		// Take the batch last, so that it includes the items that arrive during gather and keepPace.
		b.gather()
		b.keepPace()
		batch := b.next()
		if batch == nil {
			return
		}
		began := time.Now()
		b.Flush(batch)
		b.ended(time.Since(began))
	}
}

func (b *Batcher[T]) ended(took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Pace.End(took)
}

// Yield lets other goroutines run. A simulation replaces it before it uses a Batcher, because runtime.Gosched may return
// although other goroutines have not run.
var Yield = runtime.Gosched

// mostYields limits gather when other goroutines never stop adding.
const mostYields = 16

// gather yields to goroutines that are about to add items. It does not sleep. Without gather, when hundreds of handlers
// return together, the first item would form a batch alone.
func (b *Batcher[T]) gather() {
	before := b.Size()
	for range mostYields {
		Yield()
		now := b.Size()
		if now == before || now >= b.Max {
			return
		}
		before = now
	}
}

// keepPace waits until Pace allows the next flush. A batch that becomes full ends the wait.
func (b *Batcher[T]) keepPace() {
	for {
		early, full := b.early()
		if early <= 0 {
			return
		}
		timer := time.NewTimer(early)
		select {
		case <-timer.C:
		case <-full:
			timer.Stop()
		}
	}
}

// early returns how long a flush must still wait, and a channel that is closed when the batch is full. A full batch
// does not wait.
func (b *Batcher[T]) early() (time.Duration, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 || len(b.waiting) >= b.Max {
		return 0, nil
	}
	early := time.Until(b.Pace.Next())
	if early > 0 && b.full == nil {
		b.full = make(chan struct{})
	}
	return early, b.full
}

// The method next takes the next batch. If nothing waits, it returns nil and the worker ends.
func (b *Batcher[T]) next() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		b.running--
		if b.running == 0 && b.idle != nil {
			close(b.idle)
			b.idle = nil
		}
		return nil
	}
	n := min(len(b.waiting), b.Max)
	b.flushed = n
	b.Pace.Begin(time.Now()) // The mutex also guards Pace. Begin comes before Flush, because Pace counts from the start of a flush.
	batch := b.waiting[:n:n]
	if b.waiting = b.waiting[n:]; len(b.waiting) == 0 {
		b.waiting = nil // An idle Batcher must not keep references to flushed items.
	}
	return batch
}

// Size returns the number of items that wait for a flush.
func (b *Batcher[T]) Size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

// Quiet reports whether nothing waits and nothing is being flushed.
func (b *Batcher[T]) Quiet() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running == 0
}

// Done returns a channel that is closed when nothing waits and nothing is being flushed.
func (b *Batcher[T]) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.idle != nil {
		return b.idle
	}
	idle := make(chan struct{})
	if b.running == 0 {
		close(idle)
	} else {
		b.idle = idle
	}
	return idle
}
