package verdict

import (
	"cmp"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

const defaultSettle = 1500

// A transaction can fail for reasons that only the server knows.
const putOffForNoReason = 5 // per thousand

// checkLostSuccess looks at attempts that returned nil well before their lease ended. It skips an attempt whose process
// died or could not reach the database. The next stored step of the entry must be the success, unless a person or a
// service changed the entry.
//
// A transactional handler that returned nil may be retried in a few cases, because its COMMIT may have failed.
func checkLostSuccess(l *Ledger, c *Check) {
	transactional, putOff := 0, 0
	var firstOf *Entry
	var first []Place
	l.eachEntry(func(e *Entry) {
		for i := range e.attempts {
			a := &e.attempts[i]
			if a.outcome != history.OutcomeOK || e.lastAttempt(a.version) != a {
				continue
			}
			inTx, next := l.transactional(e, a.state), e.stepThatEnded(a.version)
			if inTx {
				transactional++
			}
			left, surely := l.timeLeft(e, a, next)
			if !surely {
				continue
			}
			c.Looked++
			switch {
			case next == nil:
				c.violate(e, e.lines(a.version), "its handler returned nil %d ms before its lease ended, and no outcome was recorded", left)
			case next.move == moveSuccess, next.move == moveCompensated, actionOf[next.move] != "":
			case inTx && next.move == movePause:
				c.note("a transactional handler returned nil and is retried without a fault, because of: %s", l.attemptError(e, a, next))
				if putOff++; first == nil {
					first, firstOf = append(e.lines(a.version), next.place), e
				}
			default:
				c.violate(e, append(e.lines(a.version), next.place), "its handler returned nil %d ms before its lease ended, and the recorded step is: %s", left, next.move)
			}
		}
	})
	c.Notes = counted(c.Notes)
	c.note("%d transactional handlers returned nil, %d are retried without a fault", transactional, putOff)
	if putOff*1000 > transactional*putOffForNoReason {
		c.violate(firstOf, first, "first of %d transactional handlers that returned nil and are retried without a reason, of %d", putOff, transactional)
	}
}

// timeLeft returns the time, in ms, from the return of an attempt to the end of its lease. canStore is true if the
// process was certainly able to store the outcome before the lease ended and before the next step.
func (l *Ledger) timeLeft(e *Entry, a *attempt, next *step) (leftMS int64, canStore bool) {
	settle := cmp.Or(l.Run.SettleMS, defaultSettle)
	_, until := e.lastLease(a.version)
	leftMS = (until - a.ended) / 1000
	if next != nil {
		until = min(until, next.wall)
	}
	return leftMS, leftMS >= settle && !l.disturbed(a, until)
}

func (l *Ledger) disturbed(a *attempt, until int64) bool {
	p := l.processes[a.process]
	return p.last < until && !p.ended || l.stalled(a.ended, until, p.app) || l.hit(a.ended, until, p.app,
		history.TouchesApp, history.TouchesDatabase, history.TouchesAppToDB, history.TouchesLocks, history.TouchesDBClock)
}

// attemptError is for human readers and does not affect the verdict.
func (l *Ledger) attemptError(e *Entry, a *attempt, next *step) string {
	for i := range l.events {
		ev := &l.events[i]
		if ev.Event == history.EventAttemptBroken && ev.ID == e.ID && ev.At+jump >= a.ended && ev.At <= next.wall+jump {
			return ev.Err
		}
	}
	return "an error that is not in the history"
}
