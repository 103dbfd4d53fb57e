package compensator

import (
	"context"
	"errors"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/internal/timingwheel"
	"github.com/compensator-go/compensator/processlog"
)

// openQueue makes the queue that Config names: on its Redis, or a wheel in this process.
func (c *Compensator) openQueue() (processlog.Queue, error) {
	switch {
	case c.cfg.Queue != nil:
		return c.cfg.Queue, nil
	case c.cfg.Redis == nil:
		return timingwheel.New(), nil
	}
	queue, err := redisqueue.Open(c.cfg.Redis, c.cfg.Prefix)
	if err != nil {
		return nil, err
	}
	return queue, nil
}

// local reports whether the queue knows this process's entries only.
func (c *Compensator) local() bool { return c.cfg.Queue == nil && c.cfg.Redis == nil }

// queueCheckMost is the longest that New waits for the queue. A cluster may need several round trips for its first answer.
const queueCheckMost = 10 * time.Second

// checkQueue asks the queue, which has its QueueShare of ctx: what New does next, it does in the database. New refuses a
// queue that belongs to another log. It accepts one that does not answer, and the database is polled until the queue does.
func (c *Compensator) checkQueue(ctx context.Context) (answers bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, engine.QueueShare(ctx, queueCheckMost))
	defer cancel()
	err = c.queue.Check(ctx, c.fingerprint)
	var refused *FieldError
	switch {
	case errors.As(err, &refused):
		return false, err
	case err != nil:
		c.log.Warn("compensator: the queue cannot be used; polling the database meanwhile", "err", err)
		return false, nil
	}
	if q, ok := c.queue.(*redisqueue.Queue); ok {
		if policy := q.Evicts(ctx); policy != "" {
			c.log.Warn("compensator: Redis may evict the queue as a whole; use noeviction or a volatile policy", "maxmemory_policy", policy)
		}
	}
	return true, nil
}
