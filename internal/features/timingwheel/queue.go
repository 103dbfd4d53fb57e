// Package timingwheel is the delay queue of a process without Redis. Its contents are visible only to this process and
// are lost when the process ends. So the engine polls the database for all other entries. See promise G1.
//
// The queue is a hashed timing wheel for each business type, with slots of one millisecond. It never returns an entry
// before its due time. See promise G9.
//
// One mutex guards everything. A wheel advances when a method is called. The package starts no goroutine and no
// timer.
package timingwheel

import (
	"context"
	"sync"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Queue is the queue of a process without Redis. Peek and Claim return how long a caller may sleep until the next
// entry.
type Queue struct {
	start time.Time // monotonic; all times below are whole milliseconds since start

	mu    sync.Mutex // guards the rest
	types map[string]*wheelType
}

var _ processlog.Queue = (*Queue)(nil)

func New() *Queue {
	return &Queue{start: time.Now(), types: make(map[string]*wheelType)}
}

// Check always succeeds, because no other process uses this queue.
func (w *Queue) Check(context.Context, string) error { return nil }

func (w *Queue) Enqueue(ctx context.Context, items []processlog.QueueEntry, rules processlog.EnqueueRules) (newHeads, lost []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.nowLocked()
	notified := make(map[string]bool)
	for _, item := range items {
		t := w.types[item.BusinessType]
		if t == nil {
			t = newWheelType()
			w.types[item.BusinessType] = t
		}
		t.turn(now.floor)
		head := t.head()
		t.enqueue(item, now, rules)
		if t.head() < head && !notified[item.BusinessType] {
			notified[item.BusinessType] = true
			newHeads = append(newHeads, item.BusinessType)
		}
	}
	return newHeads, nil, nil
}

func (t *wheelType) enqueue(item processlog.QueueEntry, now wheelNow, rules processlog.EnqueueRules) {
	e := t.members[item.ID]
	switch {
	case e == nil:
		if item.In <= max(0, rules.Near) || rules.Limit <= 0 || len(t.members) < rules.Limit {
			t.add(item.ID, now.dueAfter(item.In))
		}
	// The wheel has the entry already, and e.at is either its due time or the end of its lease. A lease would end at
	// most MaxLease after item.In. In this case e.at is later, so e.at is a due time, and this due time is too late.
	case e.at > now.ceil+processlog.Remaining(item.In)+processlog.Remaining(rules.MaxLease):
		t.move(e, now.dueAfter(item.In))
	}
}

func (w *Queue) Claim(ctx context.Context, businessType string, limit int, lease time.Duration) (processlog.Leased, error) {
	if err := ctx.Err(); err != nil {
		return processlog.Leased{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.nowLocked()
	leased := processlog.Leased{Token: now.dueAfter(max(lease, time.Millisecond)), Next: processlog.Never}
	t := w.types[businessType]
	if t == nil {
		return leased, nil
	}
	t.turn(now.floor)
	claimed := t.take(limit)
	// The claimed entries are in no list now.
	leased.Next = w.untilLocked(t.head())
	for _, e := range claimed {
		leased.IDs = append(leased.IDs, e.id)
		t.place(e, leased.Token)
	}
	return leased, nil
}

func (w *Queue) Settle(ctx context.Context, businessType string, items []processlog.QueueOutcome) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.types[businessType]
	if t == nil {
		return nil
	}
	now := w.nowLocked()
	t.turn(now.floor)
	for _, item := range items {
		e := t.members[item.ID]
		if e == nil {
			continue
		}
		switch due := now.dueAfter(item.In); {
		// If e.at is not the token of the outcome, the entry has got another lease since, or was moved. Such an outcome
		// changes nothing, with one exception: it may make the entry due earlier.
		case e.at != item.Token && (item.Remove || e.at <= due):
		case item.Remove:
			t.remove(e)
		default:
			t.move(e, due)
		}
	}
	if len(t.members) == 0 {
		delete(w.types, businessType) // A type without entries takes no memory.
	}
	return nil
}

func (w *Queue) Peek(ctx context.Context, businessTypes []string) (waits []time.Duration, lost []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	waits = make([]time.Duration, len(businessTypes))
	for i, businessType := range businessTypes {
		waits[i] = processlog.Never
		if t := w.types[businessType]; t != nil {
			waits[i] = w.untilLocked(t.head())
		}
	}
	return waits, nil, nil
}

// Rebuild returns no types, because this queue loses no entries.
func (w *Queue) Rebuild(context.Context, []string, processlog.Token, time.Duration) ([]string, error) {
	return nil, nil
}

// Rebuilt returns all types, because this queue loses no entries.
func (w *Queue) Rebuilt(_ context.Context, businessTypes []string, _ processlog.Token) ([]string, error) {
	return businessTypes, nil
}

// Notify does nothing, because no other process uses this queue.
func (w *Queue) Notify(context.Context, []string) error { return nil }

// Listen only waits for ctx, because there are no notifications.
func (w *Queue) Listen(ctx context.Context, _ func(businessType string)) { <-ctx.Done() }

// Lead always returns true, because no other process enqueues into this queue.
func (w *Queue) Lead(context.Context, time.Duration) (bool, error) { return true, nil }

// Close drops all entries.
func (w *Queue) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.types)
	return nil
}

// wheelNow is the present time in whole milliseconds. The field floor is rounded down, and the field ceil is rounded
// up. A due time is computed from ceil, and an entry is due when floor reaches this time. So no entry is due a fraction
// of a millisecond too early.
type wheelNow struct{ floor, ceil int64 }

func (w *Queue) nowLocked() wheelNow {
	elapsed := time.Since(w.start)
	return wheelNow{int64(elapsed / time.Millisecond), processlog.Remaining(elapsed)}
}

func (n wheelNow) dueAfter(d time.Duration) int64 {
	if d <= 0 {
		return n.floor
	}
	return n.ceil + processlog.Remaining(d)
}

func (w *Queue) untilLocked(at int64) time.Duration {
	if at > int64(processlog.Never/time.Millisecond) {
		return processlog.Never
	}
	return max(0, time.Duration(at)*time.Millisecond-time.Since(w.start))
}
