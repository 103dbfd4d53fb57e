package delay

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestWheelFiresEachTimerOnceInItsTickNeverEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tick = 10 * time.Millisecond
		w := newWheel(8, tick) // a round is 80 ms
		stop := make(chan struct{})
		defer close(stop)
		go func() { // Advance the wheel as its method turn does, until the bubble ends.
			for range 1000 {
				select {
				case <-stop:
					return
				case <-time.After(tick):
					w.pass(int64(time.Since(w.start) / tick))
				}
			}
		}()
		var fired sync.Map
		time.Sleep(5 * time.Millisecond)
		for _, delay := range []time.Duration{0, 1, 75, 79, 80, 81, 159, 160, 161, 1000, 1003} {
			delay *= time.Millisecond
			due := time.Now().Add(delay)
			w.add(delay, func() {
				if late := time.Since(due); late < 0 || late > tick {
					t.Errorf("delay %v: %v late, want up to %v", delay, late, tick)
				}
				if _, again := fired.LoadOrStore(delay, true); again {
					t.Errorf("delay %v fired twice", delay)
				}
			})
		}
		time.Sleep(2 * time.Second)
		n := 0
		fired.Range(func(any, any) bool { n++; return true })
		if n != 11 {
			t.Errorf("got %d fired, want 11", n)
		}
	})
}
