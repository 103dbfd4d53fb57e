package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// QueueClient implements processlog.Queue. It is a Queue as one process sees it, and passes suite.TestQueue.
type QueueClient struct {
	queue  *Queue
	number int // number of the client, counted from 1
	closed atomic.Bool
}

var _ processlog.Queue = (*QueueClient)(nil)

var errQueueClosed = errors.New("compensatortest/memory: queue client is closed")

// checkOpen locks the queue, unless it returns an error.
func (c *QueueClient) checkOpen(ctx context.Context, operation string) error {
	err := ctx.Err()
	if err == nil && c.closed.Load() {
		err = errQueueClosed
	}
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	c.queue.mu.Lock()
	return nil
}

// Check implements processlog.Queue.
func (c *QueueClient) Check(ctx context.Context, fingerprint string) error {
	if err := c.checkOpen(ctx, "check"); err != nil {
		return err
	}
	defer c.queue.mu.Unlock()
	return c.queue.checkLocked(fingerprint)
}

// Enqueue implements processlog.Queue.
func (c *QueueClient) Enqueue(ctx context.Context, items []processlog.QueueEntry, rules processlog.EnqueueRules) (newHeads, lostTypes []string, err error) {
	if err := c.checkOpen(ctx, "enqueue"); err != nil {
		return nil, nil, err
	}
	defer c.queue.mu.Unlock()
	var types []string
	byType := make(map[string][]processlog.QueueEntry)
	for _, item := range items {
		if byType[item.BusinessType] == nil {
			types = append(types, item.BusinessType)
		}
		byType[item.BusinessType] = append(byType[item.BusinessType], item)
	}
	left := &processlog.LeftOutError{Reason: "there is no room"}
	for _, businessType := range types {
		newHead, isLost, isLeft := c.queue.enqueueLocked(businessType, byType[businessType], rules)
		left.BusinessTypes = appendIf(isLeft, left.BusinessTypes, businessType)
		newHeads = appendIf(newHead, newHeads, businessType)
		lostTypes = appendIf(isLost, lostTypes, businessType)
	}
	if len(left.BusinessTypes) > 0 {
		return newHeads, lostTypes, fmt.Errorf("enqueue: %w", left)
	}
	return newHeads, lostTypes, nil
}

// Claim implements processlog.Queue. It takes at most 1,000 entries, even when limit is higher.
func (c *QueueClient) Claim(ctx context.Context, businessType string, limit int, lease time.Duration) (processlog.Leased, error) {
	if err := c.checkOpen(ctx, "claim "+businessType); err != nil {
		return processlog.Leased{}, err
	}
	defer c.queue.mu.Unlock()
	return c.queue.claimLocked(businessType, limit, lease), nil
}

// Settle implements processlog.Queue.
func (c *QueueClient) Settle(ctx context.Context, businessType string, items []processlog.QueueOutcome) error {
	if err := c.checkOpen(ctx, "settle "+businessType); err != nil {
		return err
	}
	defer c.queue.mu.Unlock()
	c.queue.settleLocked(businessType, items)
	return nil
}

// Peek implements processlog.Queue.
func (c *QueueClient) Peek(ctx context.Context, businessTypes []string) (waits []time.Duration, lostTypes []string, err error) {
	if err := c.checkOpen(ctx, "peek"); err != nil {
		return nil, nil, err
	}
	defer c.queue.mu.Unlock()
	waits = make([]time.Duration, len(businessTypes))
	for i, businessType := range businessTypes {
		var isLost bool
		waits[i], isLost = c.queue.peekLocked(businessType)
		lostTypes = appendIf(isLost, lostTypes, businessType)
	}
	return waits, lostTypes, nil
}

// Inspect implements processlog.QueueInspector.
func (c *QueueClient) Inspect(ctx context.Context, businessType string, id processlog.ID) (processlog.Queued, error) {
	if err := c.checkOpen(ctx, "inspect"); err != nil {
		return processlog.Queued{}, err
	}
	defer c.queue.mu.Unlock()
	return c.queue.inspectLocked(businessType, id), nil
}

// Rebuild implements processlog.Queue.
func (c *QueueClient) Rebuild(ctx context.Context, businessTypes []string, token processlog.Token, period time.Duration) (assigned []string, err error) {
	if err := c.checkOpen(ctx, "rebuild"); err != nil {
		return nil, err
	}
	defer c.queue.mu.Unlock()
	for _, businessType := range businessTypes {
		assigned = appendIf(c.queue.rebuildLocked(businessType, token, period), assigned, businessType)
	}
	return assigned, nil
}

// Rebuilt implements processlog.Queue.
func (c *QueueClient) Rebuilt(ctx context.Context, businessTypes []string, token processlog.Token) (rebuilt []string, err error) {
	if err := c.checkOpen(ctx, "end rebuild"); err != nil {
		return nil, err
	}
	defer c.queue.mu.Unlock()
	for _, businessType := range businessTypes {
		rebuilt = appendIf(c.queue.rebuiltLocked(businessType, token), rebuilt, businessType)
	}
	return rebuilt, nil
}

func appendIf(isAdded bool, types []string, businessType string) []string {
	if isAdded {
		types = append(types, businessType)
	}
	return types
}

// Notify implements processlog.Queue. It notifies every listening client, this client included.
func (c *QueueClient) Notify(ctx context.Context, businessTypes []string) error {
	if len(businessTypes) == 0 {
		return nil
	}
	if err := c.checkOpen(ctx, "notify"); err != nil {
		return err
	}
	defer c.queue.mu.Unlock()
	for _, l := range c.queue.listeners {
		l.types = append(l.types, businessTypes...)
		select {
		case l.hasNews <- struct{}{}:
		default: // The listener has not read the previous notification yet.
		}
	}
	return nil
}

type listener struct {
	hasNews chan struct{} // has a value if types is not empty
	types   []string      // not delivered yet; guarded by the queue's mu
}

// Listen implements processlog.Queue. A closed client receives no notifications.
func (c *QueueClient) Listen(ctx context.Context, wake func(businessType string)) {
	l := &listener{hasNews: make(chan struct{}, 1)}
	q := c.queue
	q.mu.Lock()
	q.listeners = append(q.listeners, l)
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.listeners = slices.DeleteFunc(q.listeners, func(other *listener) bool { return other == l })
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.hasNews:
		}
		q.mu.Lock()
		types := l.types
		l.types = nil
		q.mu.Unlock()
		for _, businessType := range types {
			if ctx.Err() == nil && !c.closed.Load() {
				wake(businessType)
			}
		}
	}
}

// Lead implements processlog.Queue. The leading client stays the leader as long as it calls Lead within each period.
// Another client takes over after a period without such a call.
func (c *QueueClient) Lead(ctx context.Context, period time.Duration) (bool, error) {
	if err := c.checkOpen(ctx, "lead"); err != nil {
		return false, err
	}
	defer c.queue.mu.Unlock()
	return c.queue.leadLocked(c.number, period), nil
}

// Close implements processlog.Queue. Later calls of this client fail. The queue and its other clients keep working.
func (c *QueueClient) Close() error {
	c.closed.Store(true)
	return nil
}
