package compensator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// queueHealth knows whether the queue answers. One failed call is enough to stop relying on it; only the
// reconciler's probe brings it back, so that a flapping queue does not make the modes flap with it.
type queueHealth struct {
	c *Compensator

	mu    sync.Mutex // guards the fields below
	down  bool
	tried time.Time // the last call while it was down
	since time.Time
	err   error
	gaps  bool // something was not announced: the queue must be rebuilt
}

// up reports whether to rely on the queue. In a process that only records, a call now and then finds out
// whether it is back.
func (h *queueHealth) up() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down && !h.c.accepts.Load() && time.Since(h.tried) > h.c.cfg.PollInterval {
		h.tried = time.Now()
		return true
	}
	return !h.down
}

// saw takes the result of a call to the queue.
func (h *queueHealth) saw(err error) {
	switch {
	case err == nil && !h.c.accepts.Load():
		h.probed(nil) // nobody else probes in a process that only records
		return
	case err == nil, h.c.work.Err() != nil, errors.Is(err, context.Canceled):
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
	h.mu.Unlock()
	if loud {
		h.c.log.Warn("compensator: the queue does not answer; polling the database", "err", err)
	}
	if first {
		tell(h.c, h.c.cfg.Observer.QueueDown, err)
	}
}

// probed takes the result of the reconciler's probe.
func (h *queueHealth) probed(err error) {
	if err != nil {
		h.saw(err)
		return
	}
	h.mu.Lock()
	back := h.down
	h.down, h.err = false, nil
	since := h.since
	h.mu.Unlock()
	if back {
		h.c.log.Debug("compensator: the queue answers again", "after", time.Since(since).Round(time.Millisecond))
		if up := h.c.cfg.Observer.QueueUp; up != nil {
			tell(h.c, func(struct{}) { up() }, struct{}{})
		}
	}
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

// quietTime is how long a flapping queue is not complained about again.
const quietTime = 10 * time.Second

// Health is what a readiness probe wants to know.
type Health struct {
	Database error // nil: it answers
	Queue    error // nil: it answers; otherwise the database is polled, which works, with more delay
	History  error // not nil: the database has gone back, and this process has stopped; see ErrHistoryLost

	// OldestOverdue is how long the entry that waits longest has been due and unclaimed, of any type; read
	// from the database, so that a queue that has lost entries does not hide them.
	OldestOverdue     time.Duration
	OldestOverdueType string

	UnknownTypes []string       // types with overdue entries that this process has no handler for
	Stuck        []StuckAttempt // handlers that run on after their timeout
	Troubles     []Trouble      // what of the library's own fails at present, and since when; it is tried again
}

// OK reports whether entries are being worked off in time: the database answers, has kept what it had, and nothing has
// been due for longer than patience.
func (h Health) OK(patience time.Duration) bool {
	return h.Database == nil && h.History == nil && h.OldestOverdue <= patience
}

// Health asks the database and the queue. It works without Run, too.
func (c *Compensator) Health(ctx context.Context) Health {
	ctx = c.reporting(ctx)
	h := Health{Stuck: c.dispatcher.stuckNow(), Troubles: c.troubles.list()}
	if loss := c.witness.stopped(); loss != nil {
		h.History = &loss.LossError
	}
	c.health.mu.Lock()
	h.Queue = c.health.err
	c.health.mu.Unlock()
	if h.Queue == nil && !c.local {
		_, _, h.Queue = c.queue.Peek(ctx, []string{"health"})
	}
	heads, err := c.store.Heads(ctx)
	for _, head := range heads {
		if err != nil || head.DueIn > 0 {
			continue
		}
		err = c.addOverdue(ctx, &h, head)
	}
	h.Database = err
	slices.Sort(h.UnknownTypes)
	h.UnknownTypes = slices.Compact(h.UnknownTypes)
	return h
}

func (c *Compensator) addOverdue(ctx context.Context, h *Health, head Head) error {
	oldest, err := c.store.Scan(ctx, Window{BusinessType: head.BusinessType, State: head.State, From: -processlog.MaxDelay, To: 0, Free: true, Limit: 1})
	if err != nil || len(oldest) == 0 {
		return err
	}
	rows, err := c.store.Load(ctx, []EntryID{oldest[0].ID})
	if err != nil {
		return err
	}
	overdue := -oldest[0].In
	if len(rows) > 0 {
		overdue = -rows[0].DueIn
	}
	if overdue > h.OldestOverdue {
		h.OldestOverdue, h.OldestOverdueType = overdue, head.BusinessType
	}
	if c.types.named(head.BusinessType) == nil && overdue > c.cfg.Grace {
		h.UnknownTypes = append(h.UnknownTypes, head.BusinessType)
	}
	return nil
}

// stuckNow lists the handlers that have outlived their timeout.
func (d *dispatcher) stuckNow() []StuckAttempt {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []StuckAttempt
	for _, a := range d.held {
		if a.hangsLocked() {
			list = append(list, StuckAttempt{ID: a.row.ID, BusinessType: a.t.name, Running: time.Since(a.started)})
		}
	}
	return list
}

// String sums a Health up in a line.
func (h Health) String() string {
	switch {
	case h.Database != nil:
		return fmt.Sprintf("database: %v", h.Database)
	case h.History != nil:
		return fmt.Sprintf("history: %v", h.History)
	case len(h.Troubles) > 0:
		return fmt.Sprintf("%s: %s; oldest overdue %v", h.Troubles[0].What, h.Troubles[0].Error, h.OldestOverdue)
	case h.Queue != nil:
		return fmt.Sprintf("queue: %v; oldest overdue %v", h.Queue, h.OldestOverdue)
	}
	return fmt.Sprintf("oldest overdue %v", h.OldestOverdue)
}
