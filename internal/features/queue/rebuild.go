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
	// rebuildPeriod is how long other processes leave a type to the process that has begun to rebuild it.
	rebuildPeriod = 10 * time.Second

	// rebuildPause is the pause before each rebuild. Several losses may be found during the pause, and one rebuild then
	// repairs all of them.
	rebuildPause = 200 * time.Millisecond
)

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
	default:
	}
}

func (l *losses) containAll(businessTypes []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(businessTypes, func(businessType string) bool {
		_, lostTypes := l.types[businessType]
		return !lostTypes
	})
}

func (l *losses) takeAll() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	types := slices.Sorted(maps.Keys(l.types))
	clear(l.types)
	return types
}

// rebuilding describes a rebuild of the queue that this process has begun. The rebuild enqueues all entries of the
// listed types. Until the rebuild ends, the other processes claim entries of these types from the queue and also from
// the database. If this process dies, another process begins a new rebuild.
type rebuilding struct {
	token processlog.Token
	types []string
}

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

// endRebuild leaves out the types of which the queue has lost entries during the rebuild.
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
		return false // Another process can begin a new rebuild of these types after rebuildPeriod.
	}
	heads.List = slices.DeleteFunc(heads.List, func(head processlog.Head) bool { return !slices.Contains(b.types, head.BusinessType) })
	var event observe.ReconciledEvent
	incompleteTypes := q.enqueueAll(ctx, heads, true, &event)
	event.RebuiltTypes = q.endRebuild(ctx, b, incompleteTypes)
	engine.NotifyObserver(q.e.Base, q.e.Observer.Reconciled, event)
	return len(event.RebuiltTypes) > 0
}

// beginAndNotify begins a rebuild of the types of which the queue has lost entries. First it checks that the queue
// still belongs to this database. Then it notifies the processes that run these types. A notified process claims from
// the queue and learns that entries are lost. So until the rebuild ends, it also claims from the database.
func (q *Queue) beginAndNotify(ctx context.Context, lostTypes []string) rebuilding {
	if !q.health.usable() {
		return rebuilding{}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	if err := q.Queue.Check(ctx, q.Fingerprint); err != nil {
		q.health.recordResult(err)
		return rebuilding{}
	}
	b := q.beginRebuild(ctx, lostTypes)
	if len(b.types) > 0 {
		// The notification is only a hint: other processes also ask the queue by themselves. So the rebuild goes on
		// after an error.
		q.e.NoteResult(problemNotify, q.Queue.Notify(ctx, b.types))
	}
	return b
}
