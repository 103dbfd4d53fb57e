package queue

import (
	"context"
	"time"
)

const lookAfterLoss = time.Second

// Look asks the queue again and again when the next entry of each type is due, until ctx ends. If a notification is
// lost, an entry is late by at most the time between two looks.
func (q *Queue) Look(ctx context.Context) {
	nextLook := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.lossSignal:
			if lookAt := time.Now().Add(lookAfterLoss); lookAt.Before(nextLook) {
				nextLook = lookAt
			}
		case <-timer.C:
			nextLook = q.lookNow(ctx)
		}
		timer.Reset(time.Until(nextLook))
	}
}

// lookNow calls lookOnce, and returns the time of the next look. A signal in lossSignal asks for a look, and this call
// of lookOnce is that look. So lookNow first removes the signal. If the queue still lacks entries, lookOnce sends a new
// signal.
func (q *Queue) lookNow(ctx context.Context) (next time.Time) {
	select {
	case <-q.lossSignal:
	default:
	}
	next = time.Now().Add(q.e.LookInterval())
	q.lookOnce(ctx)
	return next
}

// lookOnce asks for all types in one call, so that an idle type costs no call of its own.
func (q *Queue) lookOnce(ctx context.Context) {
	if ctx.Err() != nil || !q.health.usable() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	names, notified := q.e.Notifications() // Call this before Peek, because a notification during Peek is newer than Peek's answer.
	waits, lostTypes, err := q.Queue.Peek(ctx, names)
	q.health.recordResult(err)
	if err != nil {
		return
	}
	q.noteRoom(names, lostTypes)
	for i, wait := range waits {
		// The queue has answered that the next entry is due after the duration wait. If the claim of the type is
		// planned earlier, Postpone delays the claim. If the claim is planned later, Expect moves the claim forward.
		// Postpone does nothing if a notification has arrived since the queue was asked, because the answer is then
		// outdated. The number notified[i] shows this.
		q.e.Postpone(names[i], notified[i], wait)
		q.e.Expect(names[i], wait)
	}
	q.noteLoss(lostTypes)
}
