package verdict

import (
	"cmp"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

// defaultSettle is Run.SettleMS when it is 0.
const defaultSettle = 1500

// putOffForNoReason is how many of a thousand transactional handlers that returned nil may be put off with no fault in
// sight: a transaction can fail for reasons that only the server knows.
const putOffForNoReason = 5

// checkLostSuccess: a nil returned well inside the lease, by a process that lived on and reached the database, is
// the next thing recorded, unless somebody moved the entry on. What was stored in time is also not run again. A nil
// that a fault kept from being stored in time is run again by right, and whether its success was offered later all the
// same, the history does not tell from the success of that run. A transactional one that is put off has had no effect.
func checkLostSuccess(l *Ledger, c *Check) {
	transactional, putOff := 0, 0
	var firstOf *Entry
	var first []Place
	l.each(func(e *Entry) {
		for i := range e.attempts {
			a := &e.attempts[i]
			if a.outcome != history.OutcomeOK || e.lastAttempt(a.version) != a {
				continue
			}
			inTx, next := l.transactional(e, a.state), e.after(a.version)
			if inTx {
				transactional++
			}
			left, surely := l.inTime(e, a, next)
			if !surely {
				continue
			}
			c.Looked++
			switch {
			case next == nil:
				c.violate(e, e.lines(a.version), "its handler returned nil %d ms before its lease ended, and nothing is recorded", left)
			case next.move == moveSuccess, next.move == moveCompensated, actionOf[next.move] != "":
			case inTx && next.move == movePause:
				c.note("a transactional handler returned nil and was put off with no fault in sight, by: %s", l.brokenBy(e, a, next))
				if putOff++; first == nil {
					first, firstOf = append(e.lines(a.version), next.place), e
				}
			default:
				c.violate(e, append(e.lines(a.version), next.place), "its handler returned nil %d ms before its lease ended, and what was recorded is: %s", left, next.move)
			}
		}
	})
	c.Notes = counted(c.Notes)
	c.note("%d transactional handlers returned nil, %d were put off with no fault in sight", transactional, putOff)
	if putOff*1000 > transactional*putOffForNoReason {
		c.violate(firstOf, first, "the first of %d transactional handlers that returned nil and were put off for no reason, of %d", putOff, transactional)
	}
}

// inTime tells how long before its lease ended an attempt returned, ms, and whether nothing can have kept its outcome
// from being stored by then, or by what was recorded next.
func (l *Ledger) inTime(e *Entry, a *attempt, next *step) (left int64, surely bool) {
	settle := cmp.Or(l.Run.SettleMS, defaultSettle)
	_, until := e.leased(a.version)
	left = (until - a.ended) / 1000
	if next != nil {
		until = min(until, next.wall)
	}
	return left, left >= settle && !l.disturbed(a, until)
}

// disturbed reports whether something may have kept an attempt's outcome from being stored until then.
func (l *Ledger) disturbed(a *attempt, until int64) bool {
	p := l.processes[a.process]
	return p.last < until && !p.ended || l.stalled(a.ended, until, p.app) || l.hit(a.ended, until, p.app,
		history.TouchesApp, history.TouchesDatabase, history.TouchesAppToDB, history.TouchesLocks, history.TouchesDBClock)
}

// brokenBy is the class of the error that an attempt came to although its handler returned nil, as the library's
// observer was told: for people, not for the verdict.
func (l *Ledger) brokenBy(e *Entry, a *attempt, next *step) string {
	for i := range l.events {
		ev := &l.events[i]
		if ev.Event == history.EventAttemptBroken && ev.ID == e.ID && ev.At+jump >= a.ended && ev.At <= next.wall+jump {
			return ev.Err
		}
	}
	return "an error that is not written down"
}
