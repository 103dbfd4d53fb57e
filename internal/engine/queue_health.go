package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/groupcommit"
)

// queueHealth knows whether the queue answers. One failed call ends the reliance on the queue. Only the reconciler's probe
// restores it, so that a flapping queue does not make the modes flap with it.
type queueHealth struct {
	*Base
	types *types

	questions groupcommit.Batcher[chan<- error] // callers of Health that wait for the queue's answer

	mu     sync.Mutex // guards the fields below
	down   bool
	tried  time.Time // the last call while it was down
	since  time.Time // when it was found down; zero: never
	err    error
	gaps   bool // something was not enqueued: the queue must be rebuilt
	warned bool // that it is down: then that it is back is said, too
}

// quietTime is how long a flapping queue is not complained about again.
const quietTime = 10 * time.Second

func newQueueHealth(b *Base, t *types) *queueHealth {
	h := &queueHealth{Base: b, types: t}
	h.questions.Max, h.questions.Workers, h.questions.Flush = queueBound, 1, h.ask
	if b.QueueDown { // New has found it down, and has logged that
		h.down, h.gaps, h.warned, h.since = true, true, true, time.Now()
	}
	return h
}

// up reports whether the queue is relied on.
func (h *queueHealth) up() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.down
}

// tries reports whether to send a call to the queue. While the queue is down, a process that only records sends one per
// PollInterval, to find out whether the queue is back. The caller must send the call when tries returns true.
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
	case err == nil, h.Work.Err() != nil, errors.Is(err, context.Canceled):
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
		Tell(h.Base, h.Observer.QueueDown, err)
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
		h.Log.Log(h.Work, level, "compensator: the queue answers again", "after", time.Since(since).Round(time.Millisecond))
		if up := h.Observer.QueueUp; up != nil {
			Tell(h.Base, func(struct{}) { up() }, struct{}{})
		}
	}
}

// problem is why the queue is not relied on, or nil.
func (h *queueHealth) problem() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// question asks whether the queue answers, and returns at once. The caller asks the database meanwhile and then calls the
// returned function, which waits for the queue's share of ctx: QueueShare from the question on, at most queueTimeout. A known
// outage that is not worth a call is answered without one.
func (h *queueHealth) question(ctx context.Context) (answer func() error) {
	if err := h.problem(); err != nil && !h.tries() {
		return func() error { return err }
	}
	share := QueueShare(ctx, queueTimeout)
	late := time.NewTimer(share)
	answered := make(chan error, 1)
	h.questions.Add(answered)
	return func() error {
		defer late.Stop()
		select {
		case err := <-answered: // an answer that is there counts, even if the database has used up all the time
			return err
		default:
		}
		select {
		case err := <-answered:
			return err
		case <-late.C:
			return fmt.Errorf("no answer within %v: %w", share.Round(time.Millisecond), context.DeadlineExceeded)
		case <-ctx.Done():
			return fmt.Errorf("no answer yet: %w", ctx.Err())
		}
	}
}

// ask sends one call to the queue for all who wait. The call has queueTimeout, as any other, however short the deadlines of
// those who wait are: an impatient probe must not make this process give the queue up.
func (h *queueHealth) ask(waiting []chan<- error) {
	ctx, cancel := h.QueueCall()
	defer cancel()
	_, _, err := h.Queue.Peek(ctx, []string{"health"})
	h.saw(err)
	for _, answered := range waiting {
		answered <- err
	}
}

// forgot notes that an queue entry was lost.
func (h *queueHealth) forgot() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gaps = true
}

// takeGaps reports whether queue entries were lost since it was last asked.
func (h *queueHealth) takeGaps() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	gaps := h.gaps
	h.gaps = false
	return gaps
}
