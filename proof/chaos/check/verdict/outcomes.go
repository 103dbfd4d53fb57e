package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

var explains = map[string][]string{
	moveRetry: {history.OutcomeFail, history.OutcomeRetryAfter, history.OutcomePanic, history.OutcomeCanceled},
	moveExhausted: {history.OutcomeFail, history.OutcomeRetryAfter, history.OutcomePanic, history.OutcomeCanceled,
		history.OutcomePermanent},
	moveDead: {history.OutcomeFail, history.OutcomeRetryAfter, history.OutcomePanic, history.OutcomeCanceled,
		history.OutcomePermanent},
	movePause:      {history.OutcomeSnooze, history.OutcomeUnavailable, history.OutcomeCanceled},
	moveUndoFailed: {history.OutcomeFail, history.OutcomeRetryAfter, history.OutcomePanic, history.OutcomeCanceled},
	moveUndoDead: {history.OutcomeFail, history.OutcomeRetryAfter, history.OutcomePanic, history.OutcomeCanceled,
		history.OutcomePermanent},
}

// checkOutcomes requires that an attempt explains each stored outcome. A failure needs an attempt under the last claim
// before the outcome. A success may also come from an attempt under an earlier claim of the same epoch, because the
// library accepts a late success. But a success of a transactional handler or compensation needs an attempt under the
// last claim, as a failure does. A quarantine needs no attempt, but too many lost leases: see checkQuarantine.
func checkOutcomes(l *Ledger, c *Check) {
	l.eachEntry(func(e *Entry) {
		l.checkCrashes(e, c)
		for i := range e.steps {
			s := &e.steps[i]
			switch s.move {
			case moveSuccess, moveCompensated:
				c.Looked++
				l.checkSuccess(e, s, c)
			case moveCrashed, moveCrashedUndo:
				c.Looked++
				l.checkQuarantine(e, s, c)
			case moveRetry, moveExhausted, moveDead, movePause, moveUndoFailed, moveUndoDead:
				c.Looked++
				l.checkOutcome(e, s, c)
			}
		}
	})
}

func (l *Ledger) checkSuccess(e *Entry, s *step, c *Check) {
	inTx := l.transactional(e, s.old.state)
	for i := range e.attempts {
		a := &e.attempts[i]
		good := a.outcome == history.OutcomeOK && a.epoch == s.new.epoch && a.compensation == (s.move == moveCompensated) && a.version <= s.old.version
		good = good && e.lastAttempt(a.version) == a && !l.tooSoon(s, a)
		if good && (!inTx || a.version == s.old.version) {
			return
		}
	}
	c.violate(e, append(e.lines(s.old.version), s.place), "%s in epoch %d, and no attempt of that epoch returned nil", s.move, s.new.epoch)
}

// tooSoon returns false if the times of the step and of the attempt cannot be compared, or differ by no more than
// the constant jump.
func (l *Ledger) tooSoon(s *step, a *attempt) bool {
	return s.wall+jump < a.ended && l.compares(s, a.ended)
}

const crashBudget = 3

func (l *Ledger) checkCrashes(e *Entry, c *Check) {
	for i := range e.attempts {
		a := &e.attempts[i]
		claim := e.stepThatWrote(a.version)
		if claim == nil || claim.new.deliveryCount <= crashBudget {
			continue
		}
		c.violate(e, append(a.places(), claim.place), "ran after %d lost leases; the budget is %d", claim.new.deliveryCount-1, crashBudget)
	}
}

// Only an outcome resets the delivery count, so the count tells how many leases were lost in a row. checkLinear
// verifies every change of this count.
func (l *Ledger) checkQuarantine(e *Entry, s *step, c *Check) {
	if lost := s.old.deliveryCount - 1; lost <= crashBudget {
		c.violate(e, append(e.lines(s.old.version), s.place), "was quarantined after %d lost leases; the budget is %d, plus one lease for a success that waits to be stored", lost, crashBudget)
	}
	for i := range e.attempts {
		if a := &e.attempts[i]; a.version == s.old.version {
			c.violate(e, append(e.lines(s.old.version), s.place), "was quarantined under a claim that ran its handler")
		}
	}
}

func (l *Ledger) checkOutcome(e *Entry, s *step, c *Check) {
	a := e.lastAttempt(s.old.version)
	lines := append(e.lines(s.old.version), s.place)
	switch {
	case a == nil && s.move == movePause && l.transactional(e, s.old.state) && l.mayFailToBegin(e, s):
		return
	case a == nil:
		c.violate(e, lines, "%s of version %d, under which no attempt ran", s.move, s.old.version)
		return
	case a.ended == 0:
		c.violate(e, lines, "%s of version %d, whose attempt never returned", s.move, s.old.version)
		return
	case l.tooSoon(s, a):
		c.violate(e, lines, "%s of version %d, %d ms before its handler returned", s.move, s.old.version, (a.ended-s.wall)/1000)
		return
	case !l.mayLeadTo(e, s, a):
		c.violate(e, lines, "%s of version %d, whose handler returned: %s", s.move, s.old.version, a.outcome)
		return
	}
	l.checkBudget(e, s, a, lines, c)
}

// The history does not name the process of the claim, so a fault in any process counts.
func (l *Ledger) mayFailToBegin(e *Entry, s *step) bool {
	claim := e.stepThatWrote(s.old.version)
	return claim != nil && (l.stalled(claim.wall, s.wall, "") || l.hit(claim.wall, s.wall, "",
		history.TouchesApp, history.TouchesDatabase, history.TouchesAppToDB, history.TouchesLocks, history.TouchesDBClock))
}

func (l *Ledger) mayLeadTo(e *Entry, s *step, a *attempt) bool {
	switch {
	case a.outcome == history.OutcomeCanceled && a.batch == 0 && a.cause != "" && slices.Contains(explains[s.move], a.outcome):
		stopped := a.cause == history.CauseStopping || a.cause == history.CauseLeaseLost
		return stopped == (s.move == movePause)
	case slices.Contains(explains[s.move], a.outcome):
		// A canceled attempt comes here if it ran in a batch, or if the history has no cause of its cancellation. Whether the
		// process stopped the handler is then unknown, so a stop and a failure are both possible.
		return true
	case s.move == movePause && l.outOfTime(e, s, a):
		return true
	case a.outcome == history.OutcomeOK && !l.transactional(e, s.old.state):
		return false
	case a.outcome == history.OutcomeOK:
		// The handler returned nil. Its transaction may have failed to commit: see checkLostSuccess.
		return s.move == movePause || l.tooLate(e, s, a) && slices.Contains(explains[s.move], history.OutcomeFail)
	case a.outcome == history.OutcomeNoVerdict && a.batch > 1:
		return s.move == movePause // The process stopped before the entries could run alone.
	case a.outcome == history.OutcomeNoVerdict:
		// The entry did not share a batch, so a missing verdict is a failure. In a batch of one entry, the process may
		// also have stopped before the entry could run again.
		return s.move == movePause || slices.Contains(explains[s.move], history.OutcomeFail)
	}
	return false
}

// outOfTime reports whether the batch of an attempt may have timed out before the step. If a batch times out, the
// library ignores all verdicts of the batch. One of them may be a verdict that the attempt reported before the timeout.
// So in a batch of several entries, outOfTime compares the earliest timeout with the time of the step.
func (l *Ledger) outOfTime(e *Entry, s *step, a *attempt) bool {
	if a.batch <= 1 || a.cause == history.CauseTimeout {
		return a.batch > 0 && a.cause == history.CauseTimeout
	}
	up, known := l.earliestTimeout(e, a.version)
	return known && (s.wall+jump >= up || !l.compares(s, a.ended))
}

// tooLate reports whether the attempt may have timed out, although its handler returned nil. The handler writes a.ended
// just before it returns. A stall or a fault may hold up the process in between, and the timeout may come meanwhile. A
// failure that was recorded before the timeout has another cause.
func (l *Ledger) tooLate(e *Entry, s *step, a *attempt) bool {
	up, known := l.earliestTimeout(e, a.version)
	switch {
	case !known:
		return false
	case !l.compares(s, a.ended) || !l.compares(e.stepThatWrote(a.version), a.began):
		return true
	case s.wall+jump < up:
		return false
	}
	app := l.processes[a.process].app
	return a.ended+jump >= up || l.stalled(a.ended, up, app) || l.hit(a.ended, up, app, history.TouchesApp)
}

// The timeout starts when the attempt begins, which is after the claim.
func (l *Ledger) earliestTimeout(e *Entry, version uint64) (up int64, known bool) {
	t, claim := l.typeOf(e), e.stepThatWrote(version)
	if t == nil || t.TimeoutMS == 0 || claim == nil {
		return 0, false
	}
	return claim.wall + t.TimeoutMS*1000, true
}

func (l *Ledger) transactional(e *Entry, state int8) bool {
	t := l.typeOf(e)
	if t == nil {
		return false
	}
	if state == compensating {
		return t.Compensation == history.CompensationTx
	}
	return t.Handler == history.HandlerTx
}

func (l *Ledger) checkBudget(e *Entry, s *step, a *attempt, lines []Place, c *Check) {
	spent, most := int(s.new.processCount), l.maxFailures(e)
	if s.old.state == compensating {
		spent, most = int(s.new.compensateCount), l.maxUndoOf(e)
	}
	permanent := a.outcome == history.OutcomePermanent
	switch s.move {
	case moveExhausted, moveDead, moveUndoDead:
		if !permanent && most > 0 && spent < most {
			c.violate(e, lines, "given up after %d failures of %d", spent, most)
		}
		if s.move != moveExhausted && permanent != (s.new.endedBy == "permanent") {
			c.violate(e, lines, "ended by %q after its handler returned: %s", s.new.endedBy, a.outcome)
		}
	case moveRetry, moveUndoFailed:
		if most > 0 && spent >= most {
			c.violate(e, lines, "will be retried after %d failures of %d", spent, most)
		}
	}
}

func (l *Ledger) maxFailures(e *Entry) int {
	for _, in := range l.possibleInserts(e) {
		if in.Max > 0 {
			return in.Max
		}
	}
	if t := l.typeOf(e); t != nil {
		return t.MaxAttempts
	}
	return 0
}

func (l *Ledger) maxUndoOf(e *Entry) int {
	if t := l.typeOf(e); t != nil {
		return t.MaxCompensateAttempts
	}
	return 0
}
