package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/processlog"
)

// enqueuer tells the queue of entries and of what has become of them. Whoever has something to tell hands it over and goes
// on: where the queue does not take it, the reconciler comes to it again.
type enqueuer struct {
	*Base
	types         *types
	claimSchedule *claimSchedule
	health        *queueHealth
	losses        *losses

	fresh groupcommit.Batcher[processlog.QueueEntry] // entries that come due
	moved groupcommit.Batcher[processlog.QueueEntry] // those that come sooner than the queue knows
	acks  groupcommit.Batcher[ack]                   // outcomes
}

// ack is what the queue is to be told of an outcome.
type ack struct {
	businessType string
	outcome      processlog.QueueOutcome
}

// queueBound is how much may wait to be told: more than anybody can work off is found again.
const queueBound = 100_000

func newEnqueuer(b *Base, t *types, a *claimSchedule) *enqueuer {
	n := &enqueuer{Base: b, types: t, claimSchedule: a, health: newQueueHealth(b, t), losses: newLosses()}
	n.fresh.Max, n.fresh.Workers, n.fresh.Bound, n.fresh.Flush = 1000, 1, queueBound, n.enqueueBatch
	n.moved.Max, n.moved.Workers, n.moved.Bound, n.moved.Flush = 1000, 1, queueBound, n.moveBatch
	n.acks.Max, n.acks.Workers, n.acks.Bound, n.acks.Flush = 1000, 1, queueBound, n.ackBatch
	return n
}

// enqueues reports whether the queue wants to know of an entry: not beyond its horizon, and a wheel only
// of types that run here.
func (n *enqueuer) enqueues(businessType string, in time.Duration) bool {
	if in > n.Horizon+n.ReconcileInterval {
		return false
	}
	return !n.Local || n.types.accepting(businessType) != nil
}

// enqueue hands items to the queue.
func (n *enqueuer) enqueue(items []processlog.QueueEntry) { n.handOver(&n.fresh, items) }

// move tells it of an entry whose due moment somebody has moved, if it wants to know.
func (n *enqueuer) move(businessType string, id processlog.ID, in time.Duration) {
	if n.enqueues(businessType, in) {
		n.handOver(&n.moved, []processlog.QueueEntry{{BusinessType: businessType, ID: id, In: in}})
	}
}

func (n *enqueuer) handOver(batcher *groupcommit.Batcher[processlog.QueueEntry], items []processlog.QueueEntry) {
	if len(items) > 0 && !batcher.Add(items...) {
		n.health.forgot() // too many to keep in memory
	}
}

func (n *enqueuer) enqueueBatch(batch []processlog.QueueEntry) {
	n.flush(batch, n.types.leaseRange().longest)
}

// moveBatch tells of entries whose due moment somebody has moved: the place the queue knows, which may be a
// lease's end, is no longer worth keeping. A new entry's is: whoever has leased it since runs it.
func (n *enqueuer) moveBatch(batch []processlog.QueueEntry) { n.flush(batch, 0) }

// flush tells the queue of what has gathered, unless it is not relied on: the database is polled then, and the queue is rebuilt
// when it is back.
func (n *enqueuer) flush(batch []processlog.QueueEntry, maxLease time.Duration) {
	if !n.health.tries() {
		return
	}
	ctx, cancel := n.QueueCall()
	defer cancel()
	_ = n.enqueueNow(ctx, batch, maxLease) // the queue's health has been told
}

// enqueueNow tells the queue, and whoever sleeps for these entries.
func (n *enqueuer) enqueueNow(ctx context.Context, batch []processlog.QueueEntry, maxLease time.Duration) error {
	failpoint.Reach(failpoint.EnqueueNext)
	heads, lost, err := n.Queue.Enqueue(ctx, batch, processlog.EnqueueRules{MaxLease: maxLease, Limit: n.QueueLimit, Near: n.near()})
	failpoint.Reach(failpoint.Enqueued)
	n.losses.add(lost...)
	if !n.leftOut(batch, err) {
		n.health.saw(err)
		if err != nil {
			return err
		}
	}
	for _, a := range batch {
		// Only now: a claim that comes before the queue knows finds nothing.
		n.claimSchedule.expect(a.BusinessType, a.In)
	}
	// Where a claim can begin here the scanner is awake already. Every other process would come for nothing.
	elsewhere := slices.DeleteFunc(heads, func(head string) bool {
		t := n.types.accepting(head)
		return t != nil && n.claimSchedule.canClaim(t)
	})
	if len(elsewhere) > 0 && !n.Local {
		n.Saw(problemNotify, n.Queue.Notify(ctx, elsewhere)) // a hint; every scanner looks by itself before long
	}
	return err
}

// leftOut reports whether the queue, which answers, had no room for entries of some types: it is relied on for all it has,
// and the database is asked for what it has not.
func (n *enqueuer) leftOut(batch []processlog.QueueEntry, err error) bool {
	var left *processlog.LeftOutError
	if !errors.As(err, &left) {
		left = &processlog.LeftOutError{}
	}
	if err == nil || len(left.BusinessTypes) > 0 {
		n.Problems.enqueued(batch, left.BusinessTypes, err)
	}
	n.lost(left.BusinessTypes)
	return len(left.BusinessTypes) > 0
}

// lost tells that the queue may hold a part of some types' entries only: the database is asked as well, now and each
// time the queue is, and that more often. Nobody knows when those come due that it has forgotten, until it is rebuilt (G10).
func (n *enqueuer) lost(businessTypes []string) {
	if len(businessTypes) == 0 {
		return
	}
	n.losses.add(businessTypes...)
	n.claimSchedule.peekSoon(lostPeek)
	for _, businessType := range businessTypes {
		n.claimSchedule.overflow(businessType)
	}
	n.claimSchedule.Wake()
}

func (n *enqueuer) ackBatch(batch []ack) {
	if !n.health.up() {
		return // the queue's leases end by themselves, and a claim finds out what has become of the entries
	}
	byType := grouped.By(batch, func(a ack) string { return a.businessType })
	for _, name := range byType.Order {
		items := make([]processlog.QueueOutcome, len(byType.Groups[name]))
		for i, a := range byType.Groups[name] {
			items[i] = a.outcome
		}
		ctx, cancel := n.QueueCall()
		err := n.Queue.Settle(ctx, name, items)
		failpoint.Reach(failpoint.QueueSettled)
		cancel()
		n.health.saw(err)
		if err != nil {
			return // as above: each further type would wait as long for a queue that is silent, and a stop for all of them
		}
		for _, item := range items {
			if !item.Remove {
				n.claimSchedule.expect(name, item.In) // only now: a claim before the queue knows would find nothing
			}
		}
	}
}
