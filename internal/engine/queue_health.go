package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// queueHealth knows whether the queue answers. One failed call is enough to stop relying on it; only the
// reconciler's probe brings it back, so that a flapping queue does not make the modes flap with it.
type queueHealth struct {
	*base
	types *types

	mu     sync.Mutex // guards the fields below
	down   bool
	tried  time.Time // the last call while it was down
	since  time.Time
	err    error
	gaps   bool // something was not announced: the queue must be rebuilt
	warned bool // that it is down: then that it is back is said, too
}

// quietTime is how long a flapping queue is not complained about again.
const quietTime = 10 * time.Second

func newQueueHealth(b *base, t *types) *queueHealth {
	return &queueHealth{base: b, types: t, down: b.QueueDown, gaps: b.QueueDown, warned: b.QueueDown} // New has said so
}

// up reports whether the queue is relied on.
func (h *queueHealth) up() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.down
}

// tries reports whether to tell the queue something: where it is relied on, and, in a process that only records, now and
// then to find out whether it is back. Whoever asks makes the call.
func (h *queueHealth) tries() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	// No reconciler probes there, and nothing else would ever find out.
	if h.down && !h.types.accepts.Load() && time.Since(h.tried) > h.PollInterval {
		h.tried = time.Now()
		return true
	}
	return !h.down
}

// saw takes the result of a call to the queue.
func (h *queueHealth) saw(err error) {
	switch {
	case err == nil && !h.types.accepts.Load():
		h.probed(nil) // nobody else probes in a process that only records
		return
	case err == nil, h.work.Err() != nil, errors.Is(err, context.Canceled):
		return
	}
	h.mu.Lock()
	h.tried = time.Now()
	first := !h.down
	h.down, h.err, h.gaps = true, err, true
	loud := first && time.Since(h.since) > quietTime
	if first {
		h.since = time.Now()
	}
	h.warned = h.warned || loud
	h.mu.Unlock()
	if loud {
		h.Log.Warn("compensator: the queue cannot be used; polling the database", "err", err)
	}
	if first {
		tell(h.base, h.Observer.QueueDown, err)
	}
}

// probed takes the result of the reconciler's probe.
func (h *queueHealth) probed(err error) {
	if err != nil {
		h.saw(err)
		return
	}
	h.mu.Lock()
	back, level := h.down, slog.LevelDebug
	if h.warned {
		level = slog.LevelInfo
	}
	h.down, h.err, h.warned = false, nil, false
	since := h.since
	h.mu.Unlock()
	if back {
		h.Log.Log(h.work, level, "compensator: the queue answers again", "after", time.Since(since).Round(time.Millisecond))
		if up := h.Observer.QueueUp; up != nil {
			tell(h.base, func(struct{}) { up() }, struct{}{})
		}
	}
}

// problem is why the queue is not relied on, or nil.
func (h *queueHealth) problem() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// forgot notes that an announcement was lost.
func (h *queueHealth) forgot() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gaps = true
}

// takeGaps reports whether announcements were lost since it was last asked.
func (h *queueHealth) takeGaps() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	gaps := h.gaps
	h.gaps = false
	return gaps
}
