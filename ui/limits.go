package ui

import (
	"sync"
	"time"
)

// limiter limits how many requests each actor may send per second. A burst may have twice that number.
type limiter struct {
	rate float64

	mu     sync.Mutex // guards actors
	actors map[string]allowance
}

type allowance struct {
	left float64
	at   time.Time
}

const mostActors = 10_000 // maximum number of actors remembered

func newLimiter(aSecond int) *limiter {
	return &limiter{rate: float64(aSecond), actors: make(map[string]allowance)}
}

func (l *limiter) admits(actor string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, known := l.actors[actor]
	if !known {
		l.forget(now)
		a = allowance{left: 2 * l.rate, at: now}
	}
	a.left = min(2*l.rate, a.left+now.Sub(a.at).Seconds()*l.rate)
	a.at = now
	admitted := a.left >= 1
	if admitted {
		a.left--
	}
	l.actors[actor] = a
	return admitted
}

// forget removes actors that have sent no request in the last two seconds. After that time a full burst is allowed
// again, so no count is lost.
func (l *limiter) forget(now time.Time) {
	if len(l.actors) < mostActors {
		return
	}
	for actor, a := range l.actors {
		if now.Sub(a.at) >= 2*time.Second {
			delete(l.actors, actor)
		}
	}
}
