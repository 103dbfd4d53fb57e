// Package queue keeps the ids of entries in a queue that says when they are due: Redis, or a timing wheel in this
// process.
//
// The queue is a hint. It says which entries are due and when the next entry is due. Only the database says whether an
// entry exists, is due and is free. As long as the queue does not answer, the engine polls the database. See promise
// G10.
//
//	queue.go      calls from the engine to the queue
//	claim.go      claims of entries that the queue reports as due
//	health.go     whether the queue answers
//	look.go       when the next entry of each type is due
//	round.go      the queue's part in a round of the reconciler
//	rebuild.go    puts lost entries back into the queue
package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/processlog"
)

// Config is what a Queue works with. It has the same fields as Queue of package features.
type Config struct {
	Queue       processlog.Queue
	Down        bool          // the queue did not answer when it was checked
	Fingerprint string        // of the database
	Horizon     time.Duration // entries that are due later are not enqueued yet
	Limit       int           // maximum number of entries of one type
}

// Queue is the Source of an engine: see engine.Source. Callers hand entries over and do not wait for the queue. If
// the queue does not take an entry, the reconciler enqueues it again.
type Queue struct {
	Config
	local  bool // the queue knows only the entries of this process
	e      *engine.Engine
	health *health
	losses *losses
	rounds *rounds

	claims claims

	lossSignal chan struct{} // of capacity 1: holds a token when the queue has lost entries, so that the next look comes sooner

	recordedEntries groupcommit.Batcher[newEntry]
	laterEntries    groupcommit.Batcher[newEntry] // due later than shareAfter
	rescheduled     groupcommit.Batcher[newEntry] // due sooner than the queue knows
	outcomes        groupcommit.Batcher[settledEntry]
}

type newEntry struct {
	entry processlog.QueueEntry
	since time.Time // entry.In counts from this time
}

type settledEntry struct {
	businessType string
	outcome      processlog.QueueOutcome
	since        time.Time // outcome.In counts from this time
}

const (
	// callTimeout keeps a connection without answers from holding up a batcher forever.
	callTimeout = 2 * time.Second

	// shareAfter divides entries by the time until they are due. An entry that is due later than shareAfter from now
	// waits up to laterPause before this process enqueues the entry. So one call enqueues several entries.
	shareAfter = 100 * time.Millisecond
	laterPause = 10 * time.Millisecond

	// maxWaiting limits the entries in memory. The reconciler finds the others.
	maxWaiting = 100_000

	problemNotify = "other processes could not be notified"
	problemFull   = "the queue has no room for entries, which are found in the database"
)

// New makes the queue the source of an engine. local says that the queue knows only the entries of this process.
func New(e *engine.Engine, cfg Config, local bool) *Queue {
	q := &Queue{Config: cfg, local: local, e: e, losses: newLosses(), lossSignal: make(chan struct{}, 1)}
	q.health = newHealth(q)
	q.rounds = newRounds(q)
	q.claims.reset()
	q.recordedEntries.Max, q.recordedEntries.Workers, q.recordedEntries.Bound, q.recordedEntries.Flush = 1000, 1, maxWaiting, q.enqueueRecorded
	q.laterEntries.Max, q.laterEntries.Workers, q.laterEntries.Bound, q.laterEntries.Flush = 1000, 1, maxWaiting, q.enqueueRecorded
	q.laterEntries.Pace.Least = laterPause
	q.rescheduled.Max, q.rescheduled.Workers, q.rescheduled.Bound, q.rescheduled.Flush = 1000, 1, maxWaiting, q.enqueueMoved
	q.outcomes.Max, q.outcomes.Workers, q.outcomes.Bound, q.outcomes.Flush = 1000, 1, maxWaiting, q.flushSettled
	e.Await(engine.WaitAtDrainEnd, &q.outcomes, &q.recordedEntries, &q.laterEntries, &q.rescheduled)
	e.Await(engine.WaitInClose, &q.health.questions)
	e.AttachSource(engine.Source{Scope: q.scope, Accepts: q.accepts, Enqueue: q.enqueue, Move: q.move, Settle: q.settle, ClaimDue: q.claimDue, Round: q.round})
	return q
}

func (q *Queue) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(q.e.Work, callTimeout)
}

func (q *Queue) scope() engine.Scope {
	switch {
	case !q.health.usable():
		return engine.ScopeNone
	case q.local:
		return engine.ScopeOwn
	}
	return engine.ScopeAll
}

// accepts reports whether the queue takes an entry of a business type. The second parameter is the time until the entry
// is due. The queue does not take an entry that is due later than Config.Horizon plus one ReconcileInterval. If the
// queue knows only the entries of this process, it takes only entries of types that run in this process.
func (q *Queue) accepts(businessType string, in time.Duration) bool {
	if in > q.Horizon+q.e.ReconcileInterval {
		return false
	}
	return !q.local || q.e.AcceptingType(businessType) != nil
}

func (q *Queue) enqueue(entries []processlog.QueueEntry) {
	if len(entries) == 0 {
		return
	}
	batcher := &q.laterEntries
	if slices.ContainsFunc(entries, func(e processlog.QueueEntry) bool { return e.In <= shareAfter }) {
		batcher = &q.recordedEntries
	}
	now := time.Now()
	waiting := make([]newEntry, 0, 8) // on the stack, unless there are more
	for _, entry := range entries {
		waiting = append(waiting, newEntry{entry, now})
	}
	if !batcher.Add(waiting...) {
		q.health.recordGap()
	}
}

func (q *Queue) move(entry processlog.QueueEntry) {
	if q.accepts(entry.BusinessType, entry.In) && !q.rescheduled.Add(newEntry{entry, time.Now()}) {
		q.health.recordGap()
	}
}

func (q *Queue) settle(businessType string, o processlog.QueueOutcome) {
	q.outcomes.Add(settledEntry{businessType, o, time.Now()})
}

// enqueueRecorded keeps the due time of an entry that the queue already has. Another process may have leased the entry
// since it was recorded, and the queue stores a lease as a later due time.
func (q *Queue) enqueueRecorded(batch []newEntry) { q.flush(batch, q.e.LongestLease()) }

// enqueueMoved replaces the due time that the queue has, even if this time is the end of a lease.
func (q *Queue) enqueueMoved(batch []newEntry) { q.flush(batch, 0) }

// flush drops the batch while the queue is down. When the queue is back, the reconciler enqueues the entries.
func (q *Queue) flush(batch []newEntry, maxLease time.Duration) {
	if !q.health.mayCall() {
		return
	}
	entries := make([]processlog.QueueEntry, len(batch))
	for i, waited := range batch {
		entries[i] = waited.entry
		entries[i].In -= time.Since(waited.since)
	}
	ctx, cancel := q.call()
	defer cancel()
	_ = q.enqueueNow(ctx, entries, maxLease)
}

func (q *Queue) enqueueNow(ctx context.Context, batch []processlog.QueueEntry, maxLease time.Duration) error {
	failpoint.Reach(failpoint.EnqueueNext)
	heads, lostTypes, err := q.Queue.Enqueue(ctx, batch, processlog.EnqueueRules{MaxLease: maxLease, Limit: q.Limit, Near: q.nearWindow()})
	failpoint.Reach(failpoint.Enqueued)
	q.losses.add(lostTypes...)
	if !q.recordLeftOut(batch, err) {
		q.health.recordResult(err)
		if err != nil {
			return err
		}
	}
	for _, e := range batch {
		// Schedule the claim only now, after Enqueue. A claim before Enqueue would find nothing, because the queue did
		// not have the entry yet.
		q.e.Expect(e.BusinessType, e.In)
	}
	// If this process's scanner can begin a claim, the other processes need not wake.
	typesToNotify := slices.DeleteFunc(heads, func(businessType string) bool {
		t := q.e.AcceptingType(businessType)
		return t != nil && q.e.CanClaim(t)
	})
	if len(typesToNotify) > 0 && !q.local {
		// The notification is only a hint: other processes also ask the queue by themselves. So its error does not make
		// the call fail.
		q.e.NoteResult(problemNotify, q.Queue.Notify(ctx, typesToNotify))
	}
	return err
}

// Reached reports whether the queue answered the last call.
func (q *Queue) Reached() bool { return q.health.usable() }

// Notify sends messages to the other processes. While the queue is down, it sends nothing.
func (q *Queue) Notify(ctx context.Context, messages []string) error {
	if !q.health.usable() {
		return nil
	}
	return q.Queue.Notify(ctx, messages)
}

// nearWindow is how far ahead a round of the reconciler enqueues. It is longer than the lease of a dead leader plus one
// round of the next leader, so that no entry is missed. A queue in this process has no leader.
func (q *Queue) nearWindow() time.Duration {
	if q.local {
		return 2 * q.e.PollInterval
	}
	return 4 * q.e.ReconcileInterval
}

// recordLeftOut reports whether the queue had no room for entries of some types. For each of these types it notes a
// problem, and schedules a claim from the database, which finds the entries.
func (q *Queue) recordLeftOut(batch []processlog.QueueEntry, err error) bool {
	var leftOutErr *processlog.LeftOutError
	if !errors.As(err, &leftOutErr) {
		leftOutErr = &processlog.LeftOutError{}
	}
	if err == nil || len(leftOutErr.BusinessTypes) > 0 {
		for _, businessType := range leftOutErr.BusinessTypes {
			q.e.Problems.Failed(problemFull, businessType, err)
		}
		for _, e := range batch {
			q.noteRoom([]string{e.BusinessType}, leftOutErr.BusinessTypes)
		}
	}
	q.noteLoss(leftOutErr.BusinessTypes)
	return len(leftOutErr.BusinessTypes) > 0
}

func (q *Queue) noteRoom(businessTypes, lackingTypes []string) {
	if !q.e.Problems.Any() {
		return
	}
	for _, businessType := range businessTypes {
		if !slices.Contains(lackingTypes, businessType) {
			q.e.Problems.Passed(problemFull, businessType)
		}
	}
}

// noteLoss handles business types of which the queue has lost entries. Only the database knows when the lost entries
// are due, so noteLoss schedules claims from the database. It also sends lossSignal. On this signal, the method Look
// asks the queue again within lookAfterLoss. Promise G10 explains why the queue may lose entries.
func (q *Queue) noteLoss(businessTypes []string) {
	if len(businessTypes) == 0 {
		return
	}
	q.losses.add(businessTypes...)
	select {
	case q.lossSignal <- struct{}{}:
	default:
	}
	for _, businessType := range businessTypes {
		q.e.ExpectBacklog(businessType)
	}
	q.e.Wake()
}

func (q *Queue) flushSettled(batch []settledEntry) {
	if !q.health.usable() {
		return
	}
	for name, group := range grouped.Each(batch, func(s settledEntry) string { return s.businessType }) {
		items := make([]processlog.QueueOutcome, len(group))
		for i, s := range group {
			items[i] = s.outcome
			items[i].In -= time.Since(s.since)
		}
		ctx, cancel := q.call()
		err := q.Queue.Settle(ctx, name, items)
		failpoint.Reach(failpoint.QueueSettled)
		cancel()
		q.health.recordResult(err)
		if err != nil {
			return // A silent queue would cost a timeout for each further type.
		}
		for _, item := range items {
			if !item.Remove {
				// Schedule the claim only now, after Settle. A claim before Settle would find nothing, because the
				// queue did not know the new due time yet.
				q.e.Expect(name, item.In)
			}
		}
	}
}
