package queue

import (
	"context"
	"time"
)

// lostLook is the time until the next look after the queue has lost entries. In a look, this process asks the queue
// when the next entries are due.
const lostLook = time.Second

// LookSoon implements engine.Source.
func (q *Queue) LookSoon() {
	select {
	case q.look <- struct{}{}:
	default: // a look is requested already
	}
}

// Look asks the queue again and again when the next entry of each type is due, until ctx ends. A wake-up that was lost costs no
// more than the time between two looks.
func (q *Queue) Look(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-q.e.Scanned():
	}
	next := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.hasLost:
			if sooner := time.Now().Add(lostLook); sooner.Before(next) {
				next = sooner
			}
		case <-timer.C:
			select {
			case <-q.look: // This look also serves a request that waits.
			default:
			}
			next = time.Now().Add(q.e.LookEvery())
			q.lookOnce(ctx)
		case <-q.look:
			next = time.Now().Add(q.e.LookEvery())
			q.lookOnce(ctx)
		}
		timer.Reset(time.Until(next))
	}
}

// lookOnce asks for all types in one call, so that an idle type costs no call of its own.
func (q *Queue) lookOnce(ctx context.Context) {
	if ctx.Err() != nil || !q.health.up() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	names, notified := q.e.Notified() // Read this before the question, because news that comes meanwhile is newer than the answer.
	waits, lost, err := q.Queue.Peek(ctx, names)
	q.health.saw(err)
	if err != nil {
		return
	}
	q.hasRoom(names, lost)
	for i, wait := range waits {
		// Postpone has an effect unless the type was notified since the question. Expect has an effect if the entry is
		// due sooner than this process knew.
		q.e.Postpone(names[i], notified[i], wait)
		q.e.Expect(names[i], wait)
	}
	q.lost(lost)
}
