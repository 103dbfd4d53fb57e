package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

// explains lists, for each move of the engine, the outcomes that lead to it.
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

// checkOutcomes: an outcome in the row is what an attempt at exactly the claim it replaced came to; a success, of a
// handler or a compensation, that of any attempt of its epoch at the same, as successes absorb, but for transactional ones.
func checkOutcomes(l *Ledger, c *Check) {
	l.each(func(e *Entry) {
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
		good = good && e.lastAttempt(a.version) == a && !l.foretold(s, a)
		if good && (!inTx || a.version == s.old.version) {
			return
		}
	}
	c.violate(e, append(e.lines(s.old.version), s.place), "%s in epoch %d, and no attempt of it returned nil", s.move, s.new.epoch)
}

// foretold reports whether a step is there before the attempt whose outcome it is has returned.
func (l *Ledger) foretold(s *step, a *attempt) bool {
	return s.wall+jump < a.ended && l.compares(s, a.ended)
}

// crashBudget is how many leases in a row may end without an outcome.
const crashBudget = 3

// checkCrashes: what has used up its budget of lost leases is not run any more.
func (l *Ledger) checkCrashes(e *Entry, c *Check) {
	for i := range e.attempts {
		a := &e.attempts[i]
		claim := e.at(a.version)
		if claim == nil || claim.new.deliveryCount <= crashBudget {
			continue
		}
		c.violate(e, append(a.places(), claim.place), "ran after %d lost leases; the budget is %d", claim.new.deliveryCount-1, crashBudget)
	}
}

// checkQuarantine: each of the leases that count was a claim with nothing recorded after it. That they were in a
// row, the delivery count tells: only an outcome sets it back, and the linear history makes it count.
func (l *Ledger) checkQuarantine(e *Entry, s *step, c *Check) {
	if lost := s.old.deliveryCount - 1; lost <= crashBudget {
		c.violate(e, append(e.lines(s.old.version), s.place), "was quarantined after %d lost leases; the budget is %d, and one more for a success that waits", lost, crashBudget)
	}
	for i := range e.attempts {
		if a := &e.attempts[i]; a.version == s.old.version {
			c.violate(e, append(e.lines(s.old.version), s.place), "was quarantined by a claim that ran it")
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
		c.violate(e, lines, "%s of version %d, which no attempt held", s.move, s.old.version)
		return
	case a.ended == 0:
		c.violate(e, lines, "%s of version %d, whose attempt never returned", s.move, s.old.version)
		return
	case l.foretold(s, a):
		c.violate(e, lines, "%s of version %d, %d ms before its handler returned", s.move, s.old.version, (a.ended-s.wall)/1000)
		return
	case !l.explained(e, s, a):
		c.violate(e, lines, "%s of version %d, whose handler returned: %s", s.move, s.old.version, a.outcome)
		return
	}
	l.checkBudget(e, s, a, lines, c)
}

// mayFailToBegin reports whether something may have kept a process from beginning a transaction for a handler. Which
// process it was, nobody has written down, so whatever befell anybody is a reason.
func (l *Ledger) mayFailToBegin(e *Entry, s *step) bool {
	claim := e.at(s.old.version)
	return claim != nil && (l.stalled(claim.wall, s.wall, "") || l.hit(claim.wall, s.wall, "",
		history.TouchesApp, history.TouchesDatabase, history.TouchesAppToDB, history.TouchesLocks, history.TouchesDBClock))
}

// explained reports whether an attempt's outcome may lead to a step.
func (l *Ledger) explained(e *Entry, s *step, a *attempt) bool {
	switch {
	case a.outcome == history.OutcomeCanceled && a.batch == 0 && a.cause != "" && slices.Contains(explains[s.move], a.outcome):
		told := a.cause == history.CauseStopping || a.cause == history.CauseLeaseLost
		return told == (s.move == movePause)
	case slices.Contains(explains[s.move], a.outcome):
		return true // one canceled in a batch, or for no reason yet, may have been told to stop by the time it counted
	case s.move == movePause && l.outOfTime(e, s, a):
		return true // its batch was, and it was told to stop before it could run alone
	case a.outcome == history.OutcomeOK && !l.transactional(e, s.old.state):
		return false
	case a.outcome == history.OutcomeOK: // its transaction was not to be committed, or not any more; see checkLostSuccess
		return s.move == movePause || l.tooLate(e, s, a) && slices.Contains(explains[s.move], history.OutcomeFail)
	case a.outcome == history.OutcomeNoVerdict && a.batch > 1:
		return s.move == movePause // told to stop before its entries could run alone
	case a.outcome == history.OutcomeNoVerdict: // alone it is a failure; as a batch of one, the same as above
		return s.move == movePause || slices.Contains(explains[s.move], history.OutcomeFail)
	}
	return false
}

// outOfTime reports whether the batch that an attempt was a share of may have run out of time, maybe after the share was
// done: then its verdict does not count.
func (l *Ledger) outOfTime(e *Entry, s *step, a *attempt) bool {
	if a.batch <= 1 || a.cause == history.CauseTimeout {
		return a.batch > 0 && a.cause == history.CauseTimeout
	}
	up, known := l.timeUp(e, a.version)
	return known && (s.wall+jump >= up || !l.compares(s, a.ended))
}

// tooLate reports whether an attempt's time may have been up as its handler returned, so that its transaction was not
// committed although it returned nil. What is written down is a moment before that, and a process may be stopped in
// between; but no failure is recorded before the time is up.
func (l *Ledger) tooLate(e *Entry, s *step, a *attempt) bool {
	up, known := l.timeUp(e, a.version)
	switch {
	case !known:
		return false
	case !l.compares(s, a.ended) || !l.compares(e.at(a.version), a.began):
		return true
	case s.wall+jump < up:
		return false
	}
	app := l.processes[a.process].app
	return a.ended+jump >= up || l.stalled(a.ended, up, app) || l.hit(a.ended, up, app, history.TouchesApp)
}

// timeUp is the wall clock's moment before which no attempt at a version runs out of time: that begins after the claim.
func (l *Ledger) timeUp(e *Entry, version uint64) (up int64, known bool) {
	t, claim := l.typeOf(e), e.at(version)
	if t == nil || t.TimeoutMS == 0 || claim == nil {
		return 0, false
	}
	return claim.wall + t.TimeoutMS*1000, true
}

// transactional reports whether what runs an entry in a state settles in its own transaction.
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

// checkBudget: attempts are used up when they are, no sooner and no later.
func (l *Ledger) checkBudget(e *Entry, s *step, a *attempt, lines []Place, c *Check) {
	spent, most := int(s.new.processCount), l.maxOf(e)
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
			c.violate(e, lines, "to be tried again after %d failures of %d", spent, most)
		}
	}
}

// maxOf is how many failures exhaust an entry; 0: not known.
func (l *Ledger) maxOf(e *Entry) int {
	for _, in := range l.source(e) {
		if in.Max > 0 {
			return in.Max
		}
	}
	if t := l.typeOf(e); t != nil {
		return t.MaxProcessCount
	}
	return 0
}

func (l *Ledger) maxUndoOf(e *Entry) int {
	if t := l.typeOf(e); t != nil {
		return t.MaxCompensateCount
	}
	return 0
}
