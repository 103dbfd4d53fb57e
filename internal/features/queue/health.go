package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/groupcommit"
)

// health knows whether the queue answers. After one failed call, this process stops using the queue until a probe of
// the reconciler has succeeded. So a queue that fails now and then does not make the engine switch again and again.
type health struct {
	q *Queue

	questions groupcommit.Batcher[chan<- error] // callers of Health

	mu        sync.Mutex // guards the fields below
	down      bool
	lastTry   time.Time
	downSince time.Time // zero: never
	err       error
	hasGaps   bool // some entries were not enqueued
	// warned is true if a warning about the present outage of the queue was logged. The end of such an outage is logged
	// with the level Info. If no warning was logged, the end of the outage is logged with the level Debug.
	warned   bool
	loggedAt time.Time // zero: never
}

// quietTime is the minimum time between two warnings that the queue is down. A queue may fail again and again, and
// without quietTime each failure would add a warning.
const quietTime = 10 * time.Second

func newHealth(q *Queue) *health {
	h := &health{q: q}
	// Use two workers. The first worker may call QueueUp or QueueDown of the observer, and wait until this function of
	// the user returns. The function may ask for Health, which waits for an answer of askQueue. Then the second worker
	// gives this answer.
	h.questions.Max, h.questions.Workers, h.questions.Flush = maxWaiting, 2, h.askQueue
	if q.Down { // New has logged the outage.
		h.down, h.hasGaps, h.warned, h.downSince = true, true, true, time.Now()
		h.loggedAt = h.downSince
	}
	return h
}

func (h *health) usable() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.down
}

// mayCall reports whether the caller may call the queue now. After the answer true, the caller must call the queue.
// While the queue is down, a process that only records gets true once per PollInterval, because it has no rounds that
// probe the queue.
func (h *health) mayCall() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down && !h.q.e.Accepts() && time.Since(h.lastTry) > h.q.e.PollInterval {
		h.lastTry = time.Now()
		return true
	}
	return !h.down
}

func (h *health) recordResult(err error) {
	e := h.q.e
	switch {
	case err == nil && !e.Accepts():
		h.recordProbe(nil)
		return
	case err == nil, e.Work.Err() != nil, errors.Is(err, context.Canceled):
		return
	}
	h.mu.Lock()
	h.lastTry = time.Now()
	first := !h.down
	h.down, h.err, h.hasGaps = true, err, true
	if first {
		h.downSince = time.Now()
	}
	warn := !h.warned && time.Since(h.loggedAt) > quietTime
	if warn {
		h.warned, h.loggedAt = true, time.Now()
	}
	h.mu.Unlock()
	if warn {
		e.Log.Warn("compensator: the queue cannot be used; polling the database", "err", err)
	}
	if first {
		engine.NotifyObserver(e.Base, e.Observer.QueueDown, err)
	}
}

func (h *health) recordProbe(err error) {
	if err != nil {
		h.recordResult(err)
		return
	}
	h.mu.Lock()
	wasDown, level := h.down, slog.LevelDebug
	if h.warned {
		level = slog.LevelInfo
	}
	h.down, h.err, h.warned = false, nil, false
	downSince := h.downSince
	h.mu.Unlock()
	if !wasDown {
		return
	}
	e := h.q.e
	e.Log.Log(e.Work, level, "compensator: the queue answers again", "after", time.Since(downSince).Round(time.Millisecond))
	if up := e.Observer.QueueUp; up != nil {
		engine.NotifyObserver(e.Base, func(struct{}) { up() }, struct{}{})
	}
}

func (h *health) lastError() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// Problem returns the error because of which this process does not use the queue, or nil. It sends no call.
func (q *Queue) Problem() error { return q.health.lastError() }

// Ping asks whether the queue answers, and returns at once. The returned function waits for the answer. It waits at
// most for half of the time that ctx has left, and never longer than 2 s. Both times count from the call of Ping.
func (q *Queue) Ping(ctx context.Context) (answer func() error) {
	h := q.health
	if err := h.lastError(); q.local || err != nil && !h.mayCall() {
		return func() error { return err }
	}
	share := engine.QueueShare(ctx, callTimeout)
	timeout := time.NewTimer(share)
	answered := make(chan error, 1)
	h.questions.Add(answered)
	return func() error {
		defer timeout.Stop()
		select {
		// The caller may have waited for the database in the meantime, until the timeout or the end of ctx. An answer
		// of the queue that has already come still counts.
		case err := <-answered:
			return err
		default:
		}
		select {
		case err := <-answered:
			return err
		case <-timeout.C:
			return fmt.Errorf("no answer within %v: %w", share.Round(time.Millisecond), context.DeadlineExceeded)
		case <-ctx.Done():
			return fmt.Errorf("no answer yet: %w", ctx.Err())
		}
	}
}

// askQueue uses the usual timeout, because a caller with a short deadline must not make this process stop using the
// queue.
func (h *health) askQueue(waiting []chan<- error) {
	ctx, cancel := h.q.call()
	defer cancel()
	_, _, err := h.q.Queue.Peek(ctx, []string{"health"})
	h.recordResult(err)
	for _, answered := range waiting {
		answered <- err
	}
}

func (h *health) recordGap() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hasGaps = true
}

func (h *health) takeGaps() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	gaps := h.hasGaps
	h.hasGaps = false
	return gaps
}
