package delay

import (
	"context"
	"sync"
	"testing"
	"time"
)

// timingWheel keeps deadlines in the memory of the service.
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

// left: it has no store.
func (timingWheel) left(context.Context, place) ([]int, error) { return nil, nil }

// wheel is the hashed timing wheel of Varghese and Lauck, as Netty's HashedWheelTimer has it: a slot holds what
// comes due at its tick, with the rounds that have to pass before.
type wheel struct {
	start time.Time
	tick  time.Duration

	mu     sync.Mutex // guards the rest
	slots  [][]wheelTimer
	passed int64 // ticks
}

type wheelTimer struct {
	rounds int64
	do     func()
}

func newWheel(slots int, tick time.Duration) *wheel {
	return &wheel{start: time.Now(), tick: tick, slots: make([][]wheelTimer, slots)}
}

// add has do called in a goroutine of its own no earlier than after delay.
func (w *wheel) add(delay time.Duration, do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due := int64((time.Since(w.start) + delay + w.tick - 1) / w.tick)
	due = max(due, w.passed+1)
	slot, size := due%int64(len(w.slots)), int64(len(w.slots))
	w.slots[slot] = append(w.slots[slot], wheelTimer{rounds: (due - w.passed - 1) / size, do: do})
}

// turn never returns. A tick that comes late is made up for.
func (w *wheel) turn() {
	ticker := time.NewTicker(w.tick)
	for range ticker.C {
		for w.pass(int64(time.Since(w.start) / w.tick)) {
		}
	}
}

// pass does one tick, and says whether it was behind until.
func (w *wheel) pass(until int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.passed >= until {
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
