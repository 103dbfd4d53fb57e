package queue

import (
	"context"
	"math"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

const pageSize = 1000

// rounds enqueues entries when they come due within Config.Horizon, and enqueues lost entries again. Each round reads
// from the beginning, because a transaction may commit an entry that is due earlier than the entries of the last
// round.
type rounds struct {
	q *Queue

	guard chan struct{} // of capacity 1, full while a round or a rebuild is under way; guards the fields below
	// lacksOwnEntries is true if the queue may lack entries of which only this process knows. It is true at the
	// beginning of Run and after an outage.
	lacksOwnEntries bool
	rebuild         bool // in its next round as leader, this process enqueues all entries within the horizon
}

func newRounds(q *Queue) *rounds { return &rounds{q: q, guard: make(chan struct{}, 1)} }

func (r *rounds) lock(ctx context.Context) bool {
	select {
	case r.guard <- struct{}{}:
		if ctx.Err() == nil {
			return true
		}
		r.unlock() // ctx has ended, but the select may choose any case that is ready.
		return false
	case <-ctx.Done():
		return false
	}
}

func (r *rounds) unlock() { <-r.guard }

// BeforeRun prepares for the first round of a Run. At that time it is unknown which entries the queue has.
func (q *Queue) BeforeRun(ctx context.Context) {
	q.claims.reset()
	if r := q.rounds; r.lock(ctx) {
		r.lacksOwnEntries, r.rebuild = true, true
		r.unlock()
	}
}

func (q *Queue) round(ctx context.Context) func(context.Context, engine.Heads, *observe.ReconciledEvent) {
	r := q.rounds
	if !r.lock(ctx) {
		return nil
	}
	defer r.unlock()
	isLeader := r.probe(ctx)
	rebuild := isLeader && r.rebuild && !q.local
	var b rebuilding
	// Begin the rebuild before the round reads entries, because the queue may lose entries during the round. The begin
	// of the rebuild puts a mark for each type into the queue. If the queue later loses the entries of a type, it also
	// loses the mark of the type. At the end of the rebuild, a type without its mark is not reported as complete. See
	// promise G10.
	if rebuild {
		b = q.beginRebuild(ctx, q.e.TypeNames())
	}
	return func(ctx context.Context, heads engine.Heads, event *observe.ReconciledEvent) {
		if r.lock(ctx) {
			defer r.unlock()
			r.finish(ctx, isLeader, rebuild, b, heads, event)
		}
	}
}

func (r *rounds) finish(ctx context.Context, isLeader, rebuild bool, b rebuilding, heads engine.Heads, event *observe.ReconciledEvent) {
	event.Rebuilt = isLeader && r.rebuild
	// The leader always enqueues. Another process enqueues only if the queue works, and if the queue may lack entries
	// of which only that process knows. In all other cases, this process has nothing to enqueue.
	if !isLeader && (!r.lacksOwnEntries || !r.q.health.usable()) {
		return
	}
	incompleteTypes := r.q.enqueueAll(ctx, heads, rebuild, event)
	if r.q.losses.containAll(incompleteTypes) { // This is also true if no type is incomplete.
		// If this process does not lead, the field rebuild keeps its value. This process may lead the next round, which
		// then rebuilds.
		r.lacksOwnEntries, r.rebuild = false, r.rebuild && !isLeader
	}
	r.q.endRebuild(ctx, b, incompleteTypes)
}

// probe checks the queue, and tries to become the leader of the rounds. The call of Lead writes, so a queue that can
// only answer reads counts as down.
func (r *rounds) probe(ctx context.Context) (isLeader bool) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// Check the owner of the prefix first, because this process must not enqueue entries under the prefix of another
	// database.
	err := r.q.Queue.Check(ctx, r.q.Fingerprint)
	failpoint.Reach(failpoint.OwnerChecked)
	if err == nil {
		// No entry comes due before the queue has it, even if the leader dies after a round. The lease of the dead
		// leader ends at most two intervals later. The next leader then needs at most one more interval until its first
		// round. These are three intervals, and each round enqueues the entries of the next four intervals. See
		// nearWindow.
		isLeader, err = r.q.Queue.Lead(ctx, 2*r.q.e.ReconcileInterval)
	}
	failpoint.Reach(failpoint.LeadershipAsked)
	r.q.health.recordProbe(err)
	if r.q.health.takeGaps() {
		r.lacksOwnEntries = true
	}
	if err != nil {
		r.rebuild = true
	}
	return isLeader && err == nil
}

func (q *Queue) enqueueAll(ctx context.Context, heads engine.Heads, rebuild bool, event *observe.ReconciledEvent) (incompleteTypes []string) {
	for _, head := range heads.List {
		if q.local && q.e.TypeNamed(head.BusinessType) == nil {
			continue
		}
		n, ok := q.enqueueState(ctx, head, heads.SentAt, rebuild)
		event.Enqueued += n
		if !ok {
			incompleteTypes = append(incompleteTypes, head.BusinessType)
		}
	}
	return incompleteTypes
}

// enqueueState enqueues entries of one type and state that are due within nearWindow, and overdue entries, which the
// queue may have lost. In a rebuild it enqueues all entries within the horizon.
func (q *Queue) enqueueState(ctx context.Context, head processlog.Head, readAt time.Time, rebuild bool) (enqueued int, complete bool) {
	horizon := q.nearWindow()
	if rebuild {
		horizon = max(horizon, q.Horizon)
	}
	if head.DueIn > horizon {
		return 0, true
	}
	window := processlog.Window{BusinessType: head.BusinessType, State: head.State, From: -processlog.MaxDelay, To: horizon, Limit: pageSize}
	if rebuild {
		return q.enqueueWindow(ctx, window, q.Limit)
	}
	nearEntries := window
	nearEntries.From = 0
	enqueued, complete = q.enqueueWindow(ctx, nearEntries, math.MaxInt)
	// Most overdue entries of an ordered type may be blocked, and would be enqueued again with each round.
	if q.e.Ordered(head.BusinessType) {
		return enqueued, complete
	}
	// Return if the earliest entry is not overdue by OverdueAfter yet. The field DueIn is the time until this entry was
	// due at the time readAt, so compare it with the time since readAt.
	if !complete || head.DueIn > time.Since(readAt)+time.Millisecond-q.e.OverdueAfter() {
		return enqueued, complete
	}
	// The field Free leaves out entries with a lease. An entry with a lease runs, or the queue makes the entry due
	// again when its lease in the queue ends.
	window.To, window.Free = -q.e.OverdueAfter(), true
	n, complete := q.enqueueWindow(ctx, window, pageSize)
	return enqueued + n, complete
}

// enqueueWindow enqueues up to limit entries that are due within the window w. The end of the window is fixed when the
// call begins. If the end moved on with the clock, a slow reader might never reach it.
func (q *Queue) enqueueWindow(ctx context.Context, w processlog.Window, limit int) (enqueued int, complete bool) {
	windowEnd := time.Now().Add(w.To)
	for enqueued < limit {
		page, err := q.e.ReadWindow(ctx, w)
		if err != nil || q.enqueuePage(ctx, w.BusinessType, page) != nil {
			return enqueued, false
		}
		enqueued += len(page)
		if len(page) < w.Limit {
			return enqueued, true
		}
		w.After, w.To = page[len(page)-1], time.Until(windowEnd)
	}
	return enqueued, true
}

func (q *Queue) enqueuePage(ctx context.Context, businessType string, page []processlog.Scheduled) error {
	entries := make([]processlog.QueueEntry, len(page))
	for i, e := range page {
		entries[i] = processlog.QueueEntry{BusinessType: businessType, ID: e.ID, In: e.In}
	}
	if len(entries) == 0 {
		return nil
	}
	failpoint.Reach(failpoint.PageScanned)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return q.enqueueNow(ctx, entries, q.e.LongestLease())
}
