package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

const (
	// rebuildPeriod is how long others leave a type to the process that began to rebuild it. That one may have died.
	rebuildPeriod = 10 * time.Second

	// rebuildPause lets losses that come together be one rebuild's, and bounds what a queue that loses again and again
	// costs.
	rebuildPause = 200 * time.Millisecond
)

// losses are the types of which the queue said that it has lost entries, until the reconciler takes them.
type losses struct {
	news chan struct{} // room for one: what is lost while the reconciler is busy is news once more

	mu    sync.Mutex // guards types
	types map[string]struct{}
}

func newLosses() *losses {
	return &losses{news: make(chan struct{}, 1), types: make(map[string]struct{})}
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
	case l.news <- struct{}{}:
	default: // the reconciler has not looked since the last ones
	}
}

// hold reports whether all the types are among those lost: they are rebuilt by themselves.
func (l *losses) hold(businessTypes []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(businessTypes, func(businessType string) bool {
		_, lost := l.types[businessType]
		return !lost
	})
}

// take returns the types in order.
func (l *losses) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	types := slices.Sorted(maps.Keys(l.types))
	clear(l.types)
	return types
}

// rebuilding is what one process enqueues again. Only when everything has been enqueued the queue is told that it is
// whole: others go on asking the database until then, and take over if the process dies.
type rebuilding struct {
	token processlog.Token
	types []string
}

// begin returns those of the lost types that this process is to rebuild.
func (r *reconciler) begin(ctx context.Context, lost []string) rebuilding {
	b := rebuilding{token: processlog.NewToken()}
	ctx, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	var err error
	b.types, err = r.Queue.Rebuild(ctx, lost, b.token, rebuildPeriod)
	r.enqueuer.health.saw(err)
	failpoint.Reach(failpoint.RebuildBegun)
	return b
}

// end tells the queue that everything of the types was enqueued but of those missed: called whole too soon, nobody would
// enqueue the rest. It returns those that are whole: of the others something was lost meanwhile.
func (r *reconciler) end(ctx context.Context, b rebuilding, missed []string) (whole []string) {
	b.types = slices.DeleteFunc(b.types, func(t string) bool { return slices.Contains(missed, t) })
	if len(b.types) == 0 {
		return nil
	}
	failpoint.Reach(failpoint.RebuildEnqueued)
	ctx, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	whole, err := r.Queue.Rebuilt(ctx, b.types, b.token)
	r.enqueuer.health.saw(err)
	return whole
}

// restore rebuilds the types that the queue has lost: those alone, and at once. It reports whether any is whole.
func (r *reconciler) restore(ctx context.Context) bool {
	b := r.takeOn(ctx, r.enqueuer.losses.take())
	if len(b.types) == 0 {
		return false
	}
	heads, err := r.heads(ctx)
	if err != nil {
		return false // no type is whole: others take over once rebuildPeriod is past
	}
	heads = slices.DeleteFunc(heads, func(head processlog.Head) bool { return !slices.Contains(b.types, head.BusinessType) })
	var event observe.ReconciledEvent
	missed := r.enqueueAll(ctx, heads, true, &event)
	event.RebuiltTypes = r.end(ctx, b, missed)
	r.report(event)
	return len(event.RebuiltTypes) > 0
}

// takeOn begins, and tells the other processes, which from then on ask the database as well. The queue may have lost whose
// it is, too.
func (r *reconciler) takeOn(ctx context.Context, lost []string) rebuilding {
	if !r.enqueuer.health.up() {
		return rebuilding{} // the database is polled until it is
	}
	ctx, cancel := context.WithTimeout(ctx, 2*queueTimeout)
	defer cancel()
	if err := r.checkOwner(ctx, false); err != nil {
		r.enqueuer.health.saw(err)
		return rebuilding{}
	}
	b := r.begin(ctx, lost)
	if len(b.types) > 0 {
		r.Base.Saw(problemNotify, r.Queue.Notify(ctx, b.types)) // a hint; every scanner looks by itself before long
	}
	return b
}
