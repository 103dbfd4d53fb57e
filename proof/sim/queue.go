package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/processlog"
)

// gatedQueue is one instance's view of the shared queue. Each call of the queue is one step: the seed decides when the
// call runs, and which fault the call has.
type gatedQueue struct {
	from  *instance
	queue *memory.QueueClient
}

var _ processlog.Queue = (*gatedQueue)(nil)

func (q *gatedQueue) step(ctx context.Context, op, args string, do func() error) error {
	return q.from.step(ctx, classQueue, op, args, do)
}

func (q *gatedQueue) Check(ctx context.Context, fingerprint string) error {
	if q.from.opening {
		if q.from.w.outage(classQueue, "") != none {
			return errBroken
		}
		return q.queue.Check(ctx, fingerprint)
	}
	return q.step(ctx, "q.check", "", func() error { return q.queue.Check(ctx, fingerprint) })
}

func (q *gatedQueue) Enqueue(ctx context.Context, items []processlog.QueueEntry, rules processlog.EnqueueRules) (heads, lost []string, err error) {
	key := idsOf(items, func(a processlog.QueueEntry) compensator.EntryID { return a.ID })
	err = q.step(ctx, "q.announce", key, func() (err error) {
		heads, lost, err = q.queue.Enqueue(ctx, items, rules)
		return err
	})
	var left *processlog.LeftOutError
	if err != nil && !errors.As(err, &left) {
		return nil, nil, err
	}
	return heads, lost, err
}

func (q *gatedQueue) Claim(ctx context.Context, businessType string, limit int, lease time.Duration) (leased processlog.Leased, err error) {
	err = q.step(ctx, "q.claim", string(make(args, 0, 16).text(businessType).num(uint64(limit))), func() (err error) {
		leased, err = q.queue.Claim(ctx, businessType, limit, lease)
		return err
	})
	if err != nil {
		return processlog.Leased{}, err
	}
	return leased, nil
}

func (q *gatedQueue) Settle(ctx context.Context, businessType string, items []processlog.QueueOutcome) error {
	key := idsOf(items, func(o processlog.QueueOutcome) compensator.EntryID { return o.ID })
	q.from.w.oracle.checkQueueOutcomes(businessType, items)
	return q.step(ctx, "q.settle", businessType+" "+key, func() error { return q.queue.Settle(ctx, businessType, items) })
}

func (q *gatedQueue) Peek(ctx context.Context, businessTypes []string) (waits []time.Duration, lost []string, err error) {
	err = q.step(ctx, "q.peek", "", func() (err error) {
		waits, lost, err = q.queue.Peek(ctx, businessTypes)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return waits, lost, nil
}

func (q *gatedQueue) Rebuild(ctx context.Context, businessTypes []string, token processlog.Token, period time.Duration) (mine []string, err error) {
	err = q.step(ctx, "q.rebuild", namesOf(businessTypes), func() (err error) {
		q.from.w.oracle.noteRebuild(token)
		mine, err = q.queue.Rebuild(ctx, businessTypes, token, period)
		return err
	})
	if err != nil {
		return nil, err
	}
	return mine, nil
}

func (q *gatedQueue) Rebuilt(ctx context.Context, businessTypes []string, token processlog.Token) (whole []string, err error) {
	err = q.step(ctx, "q.rebuilt", namesOf(businessTypes), func() (err error) {
		whole, err = q.queue.Rebuilt(ctx, businessTypes, token)
		q.from.w.oracle.checkRebuilt(whole, token)
		return err
	})
	if err != nil {
		return nil, err
	}
	return whole, nil
}

func (q *gatedQueue) Notify(ctx context.Context, businessTypes []string) error {
	return q.step(ctx, "q.notify", namesOf(businessTypes), func() error { return q.queue.Notify(ctx, businessTypes) })
}

func namesOf(businessTypes []string) string {
	key := make(args, 0, 32)
	for _, t := range slices.Sorted(slices.Values(businessTypes)) {
		key = key.text(t)
	}
	return string(key)
}

func (q *gatedQueue) Listen(ctx context.Context, wake func(businessType string)) {
	q.queue.Listen(ctx, wake)
}

func (q *gatedQueue) Lead(ctx context.Context, period time.Duration) (leads bool, err error) {
	err = q.step(ctx, "q.lead", "", func() (err error) {
		leads, err = q.queue.Lead(ctx, period)
		return err
	})
	return leads && err == nil, err
}

func (q *gatedQueue) Close() error { return q.queue.Close() }
