// Package timingwheel is the delay queue of a process that has no Redis: what it holds is known to this process only,
// and gone with it. So the engine polls the database for what other processes have recorded, and for what the last life
// of this one had enqueued (G1).
//
// It is a hashed wheel of one millisecond a slot for each business type, which grows with its entries: it keeps the same
// contract as the queue on Redis, in package processlog, so that no second engine exists for it. Nothing it offers comes
// early (G9).
//
// The engine calls it, any method from any goroutine; one mutex guards it all. It turns when it is asked, and has no
// goroutine and no timer: Listen waits on its caller's. It knows ids, types and durations, and nothing of entries.
package timingwheel

import (
	"context"
	"sync"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Queue is the queue of a process that has no Redis. It knows only what this process enqueued, forgets it
// when the process ends, and shares nothing with others; their entries come by polling the database.
//
// It has no goroutine and no timer of its own: it turns when it is asked, and whoever sleeps until its next
// entry learns from Peek and Claim how long.
type Queue struct {
	start time.Time // monotonic; all instants below are whole milliseconds since

	mu    sync.Mutex // guards the rest
	types map[string]*wheelType
	used  bool // Kept was called
}

var _ processlog.Queue = (*Queue)(nil)

func New() *Queue {
	return &Queue{start: time.Now(), types: make(map[string]*wheelType)}
}

// Check never objects: nobody else sees a wheel.
func (w *Queue) Check(context.Context, string) error { return nil }

func (w *Queue) Enqueue(ctx context.Context, items []processlog.QueueEntry, rules processlog.EnqueueRules) (newHeads, lost []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.nowLocked()
	told := make(map[string]bool)
	for _, item := range items {
		t := w.types[item.BusinessType]
		if t == nil {
			t = newWheelType()
			w.types[item.BusinessType] = t
		}
		t.turn(now.floor)
		head := t.head()
		t.enqueue(item, now, rules)
		if t.head() < head && !told[item.BusinessType] {
			told[item.BusinessType] = true
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
			t.add(item.ID, now.after(item.In))
		}
	case e.at > now.ceil+processlog.Remaining(item.In)+processlog.Remaining(rules.MaxLease): // even a lease begun right now ends sooner
		t.move(e, now.after(item.In))
	}
}

func (w *Queue) Claim(ctx context.Context, businessType string, limit int, lease time.Duration) (processlog.Leased, error) {
	if err := ctx.Err(); err != nil {
		return processlog.Leased{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.nowLocked()
	leased := processlog.Leased{Token: now.after(max(lease, time.Millisecond)), Next: processlog.Never}
	t := w.types[businessType]
	if t == nil {
		return leased, nil
	}
	t.turn(now.floor)
	claimed := t.take(limit)
	// The claimed ones are in no list now: this is the next one beyond them.
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
		switch due := now.after(item.In); {
		// Another lease's by now: left alone, unless it would come later than this outcome says. Then it is pulled in
		// below.
		case e.at != item.Token && (item.Remove || e.at <= due):
		case item.Remove:
			t.remove(e)
		default:
			t.move(e, due)
		}
	}
	if len(t.members) == 0 {
		delete(w.types, businessType) // a type that is not used any more costs nothing
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

// Rebuild leaves nothing to rebuild: a wheel loses no type.
func (w *Queue) Rebuild(context.Context, []string, processlog.Token, time.Duration) ([]string, error) {
	return nil, nil
}

// Rebuilt knows that all types are whole.
func (w *Queue) Rebuilt(_ context.Context, businessTypes []string, _ processlog.Token) ([]string, error) {
	return businessTypes, nil
}

// Notify tells nobody: there is no other process.
func (w *Queue) Notify(context.Context, []string) error { return nil }

// Listen hears nobody.
func (w *Queue) Listen(ctx context.Context, _ func(businessType string)) { <-ctx.Done() }

// Kept is false once: what earlier processes enqueued is gone.
func (w *Queue) Kept(context.Context) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	used := w.used
	w.used = true
	return used, nil
}

// Lead is always true: nobody else reads rows for this wheel.
func (w *Queue) Lead(context.Context, time.Duration) (bool, error) { return true, nil }

// Close lets go of all entries.
func (w *Queue) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.types)
	return nil
}

// wheelNow is one reading of the clock. Due moments are computed from the millisecond that ends it, and
// compared with the one that began it: so nothing comes due early.
type wheelNow struct{ floor, ceil int64 }

func (w *Queue) nowLocked() wheelNow {
	elapsed := time.Since(w.start)
	return wheelNow{int64(elapsed / time.Millisecond), processlog.Remaining(elapsed)}
}

// after is the moment d from now.
func (n wheelNow) after(d time.Duration) int64 {
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
