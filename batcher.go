package compensator

import (
	"runtime"
	"sync"
	"time"
)

// batcher is group commit: what arrives while one batch is being flushed is the next batch. A lone item after a rest is
// flushed at once. Its goroutines live only while there is work.
type batcher[T any] struct {
	max     int // items a flush
	workers int // flushes at the same time
	bound   int // items waiting; 0: unbounded, because the callers bound them
	flush   func(batch []T)

	mu      sync.Mutex // guards the fields below
	waiting []T
	running int
	flushed int           // items of the last flush
	pace    pace          // of flushes that are not full
	idle    chan struct{} // closed when nothing waits or runs; nil when nobody asked
}

// add hands items over and returns at once. It returns false, and takes none, when the bound is reached.
func (b *batcher[T]) add(items ...T) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bound > 0 && len(b.waiting)+len(items) > b.bound {
		return false
	}
	if b.waiting == nil {
		b.waiting = make([]T, 0, max(len(items), b.flushed)) // as many may come as last time
	}
	b.waiting = append(b.waiting, items...)
	if len(b.waiting) > 0 && b.running < b.workers {
		b.running++
		go b.work()
	}
	return true
}

func (b *batcher[T]) work() {
	for {
		b.gather()
		b.keepPace()
		batch := b.next()
		if batch == nil {
			return
		}
		began := time.Now()
		b.flush(batch)
		b.ended(time.Since(began))
	}
}

func (b *batcher[T]) ended(took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pace.end(took)
}

// mostYields bounds gather where others never stop adding.
const mostYields = 16

// gather lets those who are about to add do so first: what is ready to run, runs, and nobody waits for a moment to
// pass. Of hundreds of handlers that return together the first would else be a batch of its own.
func (b *batcher[T]) gather() {
	before := b.size()
	for range mostYields {
		runtime.Gosched()
		now := b.size()
		if now == before || now >= b.max {
			return
		}
		before = now
	}
}

// keepPace waits while a flush would come too soon after the last one.
func (b *batcher[T]) keepPace() {
	for {
		early := b.early()
		if early <= 0 {
			return
		}
		time.Sleep(early)
	}
}

// early is how much too soon a flush would be now; a full one never is.
func (b *batcher[T]) early() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 || len(b.waiting) >= b.max {
		return 0
	}
	return time.Until(b.pace.next())
}

// next takes the next batch, or ends the worker.
func (b *batcher[T]) next() []T {
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
	n := min(len(b.waiting), b.max)
	b.flushed = n
	b.pace.begin(time.Now())
	batch := b.waiting[:n:n]
	if b.waiting = b.waiting[n:]; len(b.waiting) == 0 {
		b.waiting = nil // an idle lane must not keep what has passed through it
	}
	return batch
}

// size counts the items that wait for a flush.
func (b *batcher[T]) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

// quiet reports whether nothing waits and nothing is being flushed.
func (b *batcher[T]) quiet() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running == 0
}

// done is closed once nothing waits and nothing is being flushed.
func (b *batcher[T]) done() <-chan struct{} {
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
