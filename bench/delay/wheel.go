package delay

import (
	"context"
	"sync"
	"testing"
	"time"
)

type timingWheel struct{}

func (timingWheel) prepare(testing.TB) (place, error) { return place{}, nil }

func (timingWheel) serve(_ context.Context, _ place, fire fire) (record, error) {
	w := newWheel(512, 10*time.Millisecond)
	go w.turn()
	return func(_ context.Context, n int, delay time.Duration) error {
		w.add(delay, func() { fire(n, 0) })
		return nil
	}, nil
}

func (timingWheel) unfinished(context.Context, place) ([]int, error) { return nil, nil }

// wheel is the hashed timing wheel of Varghese and Lauck, as in Netty's HashedWheelTimer. Each timer counts how many
// more full rounds of the wheel must pass before it fires.
type wheel struct {
	start time.Time
	tick  time.Duration

	mu     sync.Mutex // guards slots and passed
	slots  [][]wheelTimer
	passed int64 // number of ticks that have passed
}

type wheelTimer struct {
	rounds int64
	do     func()
}

func newWheel(slots int, tick time.Duration) *wheel {
	return &wheel{start: time.Now(), tick: tick, slots: make([][]wheelTimer, slots)}
}

// add starts a timer. After the given delay, and never earlier, the wheel calls the function do in a new goroutine.
func (w *wheel) add(delay time.Duration, do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due := int64((time.Since(w.start) + delay + w.tick - 1) / w.tick)
	due = max(due, w.passed+1)
	slot, size := due%int64(len(w.slots)), int64(len(w.slots))
	w.slots[slot] = append(w.slots[slot], wheelTimer{rounds: (due - w.passed - 1) / size, do: do})
}

// After a late tick, turn fires the timers of all missed ticks.
func (w *wheel) turn() {
	ticker := time.NewTicker(w.tick)
	for range ticker.C {
		for w.pass(int64(time.Since(w.start) / w.tick)) {
		}
	}
}

// If the wheel has already reached lastTick, pass does nothing and returns false.
func (w *wheel) pass(lastTick int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.passed >= lastTick {
		return false
	}
	w.passed++
	slot := &w.slots[w.passed%int64(len(w.slots))]
	kept := (*slot)[:0]
	for _, t := range *slot {
		if t.rounds == 0 {
			go t.do()
			continue
		}
		t.rounds--
		kept = append(kept, t)
	}
	*slot = kept
	return true
}
