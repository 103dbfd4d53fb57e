package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

// lostForNoReason is how many leases of a thousand claims may be lost without a fault in sight: the machine may
// stop a process as well as we.
const lostForNoReason = 1

// checkExecutions: a claim is run by one process, and once, but for batches that came to no verdict. A claim on top
// of a claim, with no outcome between, is a lost lease: its process died, or a fault kept it from renewing.
func checkExecutions(l *Ledger, c *Check) {
	claims, lost, unexplained := 0, 0, 0
	var first []Place
	var firstOf *Entry
	l.each(func(e *Entry) {
		l.checkRuns(e, c)
		for i := range e.steps {
			s := &e.steps[i]
			if s.move != moveClaim {
				continue
			}
			claims++
			if !e.foundLapsed(s) {
				continue
			}
			lost++
			if l.mayLose(e, s) {
				continue
			}
			if unexplained++; first == nil {
				first, firstOf = append(e.lines(s.old.version), s.place), e
			}
		}
	})
	c.note("%d claims, %d leases lost, %d of them with no fault or death in sight", claims, lost, unexplained)
	if unexplained*1000 > claims*lostForNoReason {
		c.violate(firstOf, first, "the first of %d leases lost for no reason, of %d claims", unexplained, claims)
	}
}

// foundLapsed reports whether a claim took over a claim whose lease had ended. A rescheduled row keeps the lease of
// an attempt that has lost its fence; nothing is lost when that ends.
func (e *Entry) foundLapsed(claim *step) bool {
	if claim.move != moveClaim || claim.old.leaseUntil == 0 || claim.old.leaseUntil > claim.nowMS() {
		return false
	}
	before := e.at(claim.old.version)
	return before != nil && before.move != moveReschedule
}

func (l *Ledger) checkRuns(e *Entry, c *Check) {
	for i := range e.attempts {
		a := &e.attempts[i]
		c.Looked++
		var before *attempt
		runs := 1
		for k := range i {
			if e.attempts[k].version == a.version {
				before = &e.attempts[k]
				runs++
			}
		}
		if before != nil && (runs > 2 || before.process != a.process || !l.runsAgain(e, before, a)) {
			c.violate(e, append(before.places(), a.places()...), "one claim, version %d, ran twice", a.version)
		}
	}
}

// runsAgain reports whether an attempt may have been a batch's share that came to no verdict, so that its entry runs
// once more, alone. A batch may be one of one. A share with a verdict of its own runs again only when the batch's time
// was up: others of the batch may have been at work after it was done.
func (l *Ledger) runsAgain(e *Entry, a, again *attempt) bool {
	t := l.typeOf(e)
	switch {
	case t == nil || t.Handler != history.HandlerBatch || a.compensation || a.batch == 0 || a.ended == 0:
		return false
	case a.outcome == history.OutcomeNoVerdict, a.cause == history.CauseTimeout:
		return true
	case a.batch == 1:
		return false
	}
	up, known := l.timeUp(e, a.version)
	return !known || again.began+jump >= up || !l.compares(e.at(a.version), a.began)
}

// mayLose reports whether there is a reason for the lease that a claim found lapsed: something that came after it was
// last renewed. Of a claim that nobody ran, nobody knows whose it was: then whatever befell anybody is a reason.
func (l *Ledger) mayLose(e *Entry, claim *step) bool {
	renewed, _ := e.leased(claim.old.version)
	if renewed == nil {
		return false
	}
	app := ""
	if a := e.lastAttempt(claim.old.version); a != nil {
		p := l.processes[a.process]
		if p.diedBefore(claim.wall) {
			return true
		}
		app = p.app
	} else if l.diedBetween(renewed.wall, claim.wall) {
		return true
	}
	return l.stalled(renewed.wall, claim.wall, app) || l.hit(renewed.wall, claim.wall, app, history.TouchesApp, history.TouchesDatabase,
		history.TouchesAppToDB, history.TouchesLocks, history.TouchesDBClock)
}

// diedBetween reports whether a process was killed between two moments.
func (l *Ledger) diedBetween(from, to int64) bool {
	return slices.ContainsFunc(l.processes, func(p process) bool { return p.killed && p.last >= from-recovery && p.last <= to })
}
