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
	tokens float64
	at     time.Time
}

const maxActors = 10_000 // maximum number of actors remembered

func newLimiter(perSecond int) *limiter {
	return &limiter{rate: float64(perSecond), actors: make(map[string]allowance)}
}

func (l *limiter) allowRequest(actor string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, isKnown := l.actors[actor]
	if !isKnown {
		l.forgetIdle(now)
		a = allowance{tokens: 2 * l.rate, at: now}
	}
	a.tokens = min(2*l.rate, a.tokens+now.Sub(a.at).Seconds()*l.rate)
	a.at = now
	isAllowed := a.tokens >= 1
	if isAllowed {
		a.tokens--
	}
	l.actors[actor] = a
	return isAllowed
}

// An actor who has sent nothing for two seconds may send a full burst again, like a new actor.
func (l *limiter) forgetIdle(now time.Time) {
	if len(l.actors) < maxActors {
		return
	}
	for actor, a := range l.actors {
		if now.Sub(a.at) >= 2*time.Second {
			delete(l.actors, actor)
		}
	}
}
