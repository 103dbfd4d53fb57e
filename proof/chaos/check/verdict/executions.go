package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

// lostForNoReason is the share of claims whose earlier lease may be lost without a fault. A busy machine may stop a
// process for longer than a lease, and the history may not show such a stop.
const lostForNoReason = 1 // per thousand

// checkExecutions requires that each claim leads to at most one run of the entry, in one process. An entry of a batch
// may run twice if the batch returned no verdict about it.
//
// A lease that was lost without an outcome needs a reason. The process that held the lease died, for example, or a
// fault prevented the renewal.
func checkExecutions(l *Ledger, c *Check) {
	claims, lost, unexplained := 0, 0, 0
	var first []Place
	var firstOf *Entry
	l.eachEntry(func(e *Entry) {
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
			if l.mayLoseLease(e, s) {
				continue
			}
			if unexplained++; first == nil {
				first, firstOf = append(e.lines(s.old.version), s.place), e
			}
		}
	})
	c.note("%d claims, %d leases lost, %d of them without a fault or a killed process", claims, lost, unexplained)
	if unexplained*1000 > claims*lostForNoReason {
		c.violate(firstOf, first, "first of %d leases lost without a reason, of %d claims", unexplained, claims)
	}
}

// foundLapsed reports whether the claim found a lease that had run out, so the lease was lost. foundLapsed returns
// false if the entry was rescheduled during the lease. The reschedule discards the outcome of the running attempt, so
// no outcome ends the lease.
func (e *Entry) foundLapsed(claim *step) bool {
	if claim.move != moveClaim || claim.old.leaseUntil == 0 || claim.old.leaseUntil > claim.nowMS() {
		return false
	}
	before := e.stepThatWrote(claim.old.version)
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

// runsAgain reports whether one claim may run an entry twice: first in a batch and then alone. The parameter a is the
// attempt in the batch. The parameter again is the attempt alone. A second run is right in two cases:
//   - The batch returned no verdict about the entry, or the attempt reports the timeout. The batch may hold only this
//     entry.
//   - The batch timed out after it had decided about the entry, while it worked on other entries. Then the second run
//     must begin after the timeout.
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
	up, known := l.earliestTimeout(e, a.version)
	return !known || again.began+jump >= up || !l.compares(e.stepThatWrote(a.version), a.began)
}

// mayLoseLease reports whether the history explains a lost lease. The lost lease is the one before the given claim: it
// ended without an outcome. Each of these events explains the loss:
//   - The process that held the lease died.
//   - A fault or a stall hit this process.
//
// If no attempt ran under the lease, the history does not tell which process held the lease. In this case, an event of
// any process explains the loss.
func (l *Ledger) mayLoseLease(e *Entry, claim *step) bool {
	renewed, _ := e.lastLease(claim.old.version)
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

func (l *Ledger) diedBetween(from, to int64) bool {
	return slices.ContainsFunc(l.processes, func(p process) bool { return p.killed && p.last >= from-recovery && p.last <= to })
}
