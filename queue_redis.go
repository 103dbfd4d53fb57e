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

// openQueue opens the queue that Config names: Redis, or a timing wheel in this process.
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

// local reports whether the queue holds only entries of this process.
func (c *Compensator) local() bool { return c.cfg.Queue == nil && c.cfg.Redis == nil }

// queueCheckMost bounds the time that New waits for the queue. The first answer of a cluster may need several round
// trips.
const queueCheckMost = 10 * time.Second

// checkQueue checks that the queue answers and belongs to this log. It uses only a part of ctx's time (see QueueShare),
// because New still needs time for the database. New fails if the queue belongs to another log. If the queue does not
// answer, New succeeds, and the library polls the database until the queue answers.
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
