// Package groupcommit gathers what comes one by one into batches: what arrives while one is being flushed is the next.
// Under load the cost of an item becomes a fraction of a statement; without load nothing waits for company, as it would
// for a flush interval. Pace spaces out transactions that would follow each other at once, each with a synced write that
// the commits of producers wait for.
//
// The engine's batchers are Batchers; its claims keep a Pace. Whoever adds hands over and goes on, and is told no result:
// Flush deals with errors itself. A Batcher's goroutines live while there is work; whoever owns it waits for them by
// Done, and asks Quiet where batchers feed each other. It knows nothing of what it batches, of entries or of databases.
package groupcommit

import (
	"runtime"
	"sync"
	"time"
)

// Batcher is group commit: what arrives while one batch is being flushed is the next batch. A lone item after a rest is
// flushed at once. Its goroutines live only while there is work.
type Batcher[T any] struct {
	Max     int // items a flush
	Workers int // flushes at the same time
	Bound   int // items waiting; 0: unbounded, because the callers bound them
	Flush   func(batch []T)
	Pace    Pace // of flushes that are not full

	mu      sync.Mutex // guards the fields below
	waiting []T
	running int
	flushed int           // items of the last flush
	idle    chan struct{} // closed when nothing waits or runs; nil when nobody asked
	full    chan struct{} // closed when a whole batch waits; nil when no worker keeps its pace
}

// Add hands items over and returns at once. It returns false, and takes none, when the bound is reached.
func (b *Batcher[T]) Add(items ...T) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	// All or none: who is refused has one thing to do about all of it.
	if b.Bound > 0 && len(b.waiting)+len(items) > b.Bound {
		return false
	}
	if b.waiting == nil {
		b.waiting = make([]T, 0, max(len(items), b.flushed)) // as many may come as last time
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
		// Taken last: what comes while the others add, and while the pace is kept, goes along.
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

// mostYields bounds gather where others never stop adding.
const mostYields = 16

// gather lets those who are about to add do so first: what is ready to run, runs, and nobody waits for a moment to
// pass. Of hundreds of handlers that return together the first would else be a batch of its own.
func (b *Batcher[T]) gather() {
	before := b.Size()
	for range mostYields {
		runtime.Gosched()
		now := b.Size()
		if now == before || now >= b.Max {
			return
		}
		before = now
	}
}

// keepPace waits while a flush would come too soon after the last one. A batch that becomes full meanwhile ends the wait.
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

// early returns how much too soon a flush would be now, and what is closed once the batch is full. A full batch is never too soon.
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

// next takes the next batch, or ends the worker.
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
	b.Pace.Begin(time.Now()) // under the mutex that guards it, and before Flush: the pace is between beginnings
	batch := b.waiting[:n:n]
	if b.waiting = b.waiting[n:]; len(b.waiting) == 0 {
		b.waiting = nil // an idle batcher must not keep what has passed through it
	}
	return batch
}

// Size counts the items that wait for a flush.
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

// Done is closed once nothing waits and nothing is being flushed.
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
