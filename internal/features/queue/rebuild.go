package queue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/sleep"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

const (
	// rebuildPeriod is how long other processes leave a type to the process that has begun to rebuild it. After this
	// time they assume that it has died.
	rebuildPeriod = 10 * time.Second

	// rebuildPause is the pause before each rebuild, so that one rebuild restores several losses. It also limits the
	// cost of a queue that loses entries again and again.
	rebuildPause = 200 * time.Millisecond
)

// losses is the set of types of which the queue has lost entries. A rebuild takes the types out of the set.
type losses struct {
	newLoss chan struct{} // of capacity 1: holds a token after a loss

	mu    sync.Mutex // guards types
	types map[string]struct{}
}

func newLosses() *losses {
	return &losses{newLoss: make(chan struct{}, 1), types: make(map[string]struct{})}
}

func (l *losses) add(businessTypes ...string) {
	if len(businessTypes) == 0 {
		return
	}
	l.mu.Lock()
	for _, businessType := range businessTypes {
		l.types[businessType] = struct{}{}
	}
	l.mu.Unlock()
	select {
	case l.newLoss <- struct{}{}:
	default: // the rebuild has not looked since the last loss
	}
}

// containAll reports whether all the given types are lost, so that Restore will rebuild them.
func (l *losses) containAll(businessTypes []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(businessTypes, func(businessType string) bool {
		_, lostTypes := l.types[businessType]
		return !lostTypes
	})
}

// takeAll returns the lost types in order, and forgets them.
func (l *losses) takeAll() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	types := slices.Sorted(maps.Keys(l.types))
	clear(l.types)
	return types
}

// rebuilding holds the types that one process rebuilds. When all their entries are enqueued, the queue marks the types
// as complete. Until then the other processes ask the database too, and take over if this process dies.
type rebuilding struct {
	token processlog.Token
	types []string
}

// beginRebuild returns the lost types that this process must rebuild.
func (q *Queue) beginRebuild(ctx context.Context, lostTypes []string) rebuilding {
	b := rebuilding{token: processlog.NewToken()}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var err error
	b.types, err = q.Queue.Rebuild(ctx, lostTypes, b.token, rebuildPeriod)
	q.health.recordResult(err)
	failpoint.Reach(failpoint.RebuildBegun)
	return b
}

// endRebuild tells the queue that all entries of the types were enqueued, except entries of the types in
// incompleteTypes. It returns the types that are complete. A type is missing from the result if the queue has lost
// entries of it during the rebuild.
func (q *Queue) endRebuild(ctx context.Context, b rebuilding, incompleteTypes []string) (completeTypes []string) {
	b.types = slices.DeleteFunc(b.types, func(t string) bool { return slices.Contains(incompleteTypes, t) })
	if len(b.types) == 0 {
		return nil
	}
	failpoint.Reach(failpoint.RebuildEnqueued)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	completeTypes, err := q.Queue.Rebuilt(ctx, b.types, b.token)
	q.health.recordResult(err)
	return completeTypes
}

// Restore runs until ctx ends. When the queue loses entries of a type, Restore puts them back.
func (q *Queue) Restore(ctx context.Context) {
	pause := rebuildPause
	for sleep.For(ctx, pause) {
		select {
		case <-ctx.Done():
			return
		case <-q.losses.newLoss:
		}
		pause = lookAfterLoss // Other processes are rebuilding, or the queue has no room.
		if q.rebuildLost(ctx) {
			pause = rebuildPause
		}
	}
}

// rebuildLost rebuilds only the types that the queue has lost, without waiting for the reconciler's next round. It
// reports whether any of them is complete now.
func (q *Queue) rebuildLost(ctx context.Context) bool {
	if !q.rounds.lock(ctx) {
		return false
	}
	defer q.rounds.unlock()
	b := q.beginAndNotify(ctx, q.losses.takeAll())
	if len(b.types) == 0 {
		return false
	}
	heads, err := q.e.ReadHeads(ctx)
	if err != nil {
		return false // No type is complete. Other processes take over after rebuildPeriod.
	}
	heads.List = slices.DeleteFunc(heads.List, func(head processlog.Head) bool { return !slices.Contains(b.types, head.BusinessType) })
	var event observe.ReconciledEvent
	incompleteTypes := q.enqueueAll(ctx, heads, true, &event)
	event.RebuiltTypes = q.endRebuild(ctx, b, incompleteTypes)
	engine.NotifyObserver(q.e.Base, q.e.Observer.Reconciled, event)
	return len(event.RebuiltTypes) > 0
}

// beginAndNotify begins to rebuild lost types, and notifies the other processes. From then on they ask the database too. The
// queue may belong to another database by now, so beginAndNotify checks it first.
func (q *Queue) beginAndNotify(ctx context.Context, lostTypes []string) rebuilding {
	if !q.health.usable() {
		return rebuilding{} // The database is polled until the queue is back.
	}
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	if err := q.Queue.Check(ctx, q.Fingerprint); err != nil {
		q.health.recordResult(err)
		return rebuilding{}
	}
	b := q.beginRebuild(ctx, lostTypes)
	if len(b.types) > 0 {
		q.e.NoteResult(problemNotify, q.Queue.Notify(ctx, b.types)) // This is only a hint, because every scanner looks by itself before long.
	}
	return b
}
