package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/internal/chaos/history"
)

// explains lists, for each move of the engine, the outcomes that lead to it.
var explains = map[string][]string{
	moveRetry: {history.OutcomeFail, history.OutcomeRetryAfter, history.OutcomePanic, history.OutcomeCanceled},
	moveExhausted: {history.OutcomeFail, history.OutcomeRetryAfter, history.OutcomePanic, history.OutcomeCanceled,
		history.OutcomePermanent},
	moveDead: {history.OutcomeFail, history.OutcomeRetryAfter, history.OutcomePanic, history.OutcomeCanceled,
		history.OutcomePermanent},
	movePause:       {history.OutcomeSnooze, history.OutcomeUnavailable, history.OutcomeCanceled},
	moveCompensated: {history.OutcomeOK},
	moveUndoFailed:  {history.OutcomeFail, history.OutcomeRetryAfter, history.OutcomePanic, history.OutcomeCanceled},
	moveUndoDead: {history.OutcomeFail, history.OutcomeRetryAfter, history.OutcomePanic, history.OutcomeCanceled,
		history.OutcomePermanent},
}

// checkOutcomes: an outcome in the row is what an attempt at exactly the claim it replaced came to; a success that
// of any attempt of its epoch, as successes absorb, but for transactional handlers.
func checkOutcomes(l *Ledger, c *Check) {
	l.each(func(e *Entry) {
		l.checkCrashes(e, c)
		for i := range e.steps {
			s := &e.steps[i]
			switch s.move {
			case moveSuccess:
				c.Looked++
				l.checkSuccess(e, s, c)
			case moveCrashed, moveCrashedUndo:
				c.Looked++
				l.checkQuarantine(e, s, c)
			case moveRetry, moveExhausted, moveDead, movePause, moveCompensated, moveUndoFailed, moveUndoDead:
				c.Looked++
				l.checkOutcome(e, s, c)
			}
		}
	})
}

func (l *Ledger) checkSuccess(e *Entry, s *step, c *Check) {
	t := l.typeOf(e)
	for i := range e.attempts {
		a := &e.attempts[i]
		good := a.outcome == history.OutcomeOK && a.epoch == s.new.epoch && !a.compensation && a.version <= s.old.version
		good = good && e.lastAttempt(a.version) == a && !l.foretold(s, a)
		if good && (t == nil || t.Handler != history.HandlerTx || a.version == s.old.version) {
			return
		}
	}
	c.violate(e, append(e.lines(s.old.version), s.place), "succeeded in epoch %d, and no attempt of it returned nil", s.new.epoch)
}

// foretold reports whether a step is there before the attempt whose outcome it is has returned.
func (l *Ledger) foretold(s *step, a *attempt) bool {
	return s.wall+jump < a.ended && !l.clock.moved(s.seq)
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
	if lost := s.old.deliveryCount - 1; lost < crashBudget {
		c.violate(e, append(e.lines(s.old.version), s.place), "was quarantined after %d lost leases; the budget is %d", lost, crashBudget)
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
	case a == nil && s.move == movePause && l.transactional(e, s.old.state):
		return // no transaction could be begun for the handler; in what process and why, nobody has written down
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

// explained reports whether an attempt's outcome may lead to a step.
func (l *Ledger) explained(e *Entry, s *step, a *attempt) bool {
	switch {
	case a.outcome == history.OutcomeCanceled && a.batch == 0 && a.cause != "" && slices.Contains(explains[s.move], a.outcome):
		told := a.cause == history.CauseStopping || a.cause == history.CauseLeaseLost
		return told == (s.move == movePause)
	case slices.Contains(explains[s.move], a.outcome):
		return true // one canceled in a batch, or for no reason yet, may have been told to stop by the time it counted
	case a.outcome == history.OutcomeOK && !l.transactional(e, s.old.state):
		return false
	case a.outcome == history.OutcomeOK: // its transaction was not to be committed, or not any more; see checkLostSuccess
		return s.move == movePause || l.tooLate(e, s, a) && slices.Contains(explains[s.move], history.OutcomeFail)
	case a.outcome == history.OutcomeNoVerdict && a.batch > 1:
		return s.move == movePause // told to stop before its entries could run alone
	case a.outcome == history.OutcomeNoVerdict: // alone it is a failure; as a batch of one, the same as above
		return s.move == movePause || slices.Contains(explains[s.move], history.OutcomeFail)
	case a.batch > 0 && a.cause == history.CauseTimeout:
		return s.move == movePause // the same, after a timeout
	}
	return false
}

// tooLate reports whether an attempt's time may have been up as its handler returned, so that its transaction was not
// committed although it returned nil. What is written down is a moment before that, and a process may be stopped in
// between; but no failure is recorded before the time is up.
func (l *Ledger) tooLate(e *Entry, s *step, a *attempt) bool {
	up, known := l.timeUp(e, a.version)
	if !known || s.wall+jump < up && !l.clock.moved(s.seq) {
		return false
	}
	app := l.processes[a.process].app
	return a.ended+jump >= up || l.stalled(a.ended, up, app) || l.hit(a.ended, up, app, history.TouchesApp) || l.clock.moved(e.at(a.version).seq)
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

// lastAttempt is the attempt at a version whose verdict counts: the last, as the entries of a batch that came to no
// verdict run again alone.
func (e *Entry) lastAttempt(version uint64) *attempt {
	for i := len(e.attempts) - 1; i >= 0; i-- {
		if e.attempts[i].version == version {
			return &e.attempts[i]
		}
	}
	return nil
}

// defaultSettle is Run.SettleMS when it is 0.
const defaultSettle = 1500

// checkLostSuccess: a nil returned well inside the lease, by a process that lived on and reached the database, is
// the next thing recorded, unless somebody moved the entry on. What was stored in time is also not run again. A nil
// that a fault kept from being stored in time is run again by right, and whether its success was offered later all the
// same, the history does not tell from the success of that run.
func checkLostSuccess(l *Ledger, c *Check) {
	settle := l.Run.SettleMS
	if settle == 0 {
		settle = defaultSettle
	}
	l.each(func(e *Entry) {
		for i := range e.attempts {
			a := &e.attempts[i]
			if a.outcome != history.OutcomeOK || e.lastAttempt(a.version) != a {
				continue
			}
			_, end := e.leased(a.version)
			next, until := e.after(a.version), end
			if next != nil {
				until = min(end, next.wall)
			}
			if end-a.ended < settle*1000 || l.disturbed(a, until) {
				continue
			}
			c.Looked++
			switch {
			case next == nil:
				c.violate(e, e.lines(a.version), "its handler returned nil %d ms before its lease ended, and nothing is recorded", (end-a.ended)/1000)
			case next.move != moveSuccess && next.move != moveCompensated && actionOf[next.move] == "" && !l.absorbed(e, a, next):
				c.violate(e, append(e.lines(a.version), next.place),
					"its handler returned nil %d ms before its lease ended, and what was recorded is: %s", (end-a.ended)/1000, next.move)
			}
		}
	})
}

// absorbed is here for a batch: a step by a verdict that the last attempt at the version did not give.
func (l *Ledger) absorbed(e *Entry, a *attempt, next *step) bool {
	if a.batch <= 1 {
		return false
	}
	return next.move == movePause && a.cause != ""
}

// leased finds the step that leased a version last, and the wall clock's moment at which that lease ends: it is renewed
// while an outcome waits to be stored. nil: no lease.
func (e *Entry) leased(version uint64) (last *step, end int64) {
	for i := range e.steps {
		s := &e.steps[i]
		if s.move != moveDelete && s.new.version == version && s.new.leaseUntil != 0 {
			last, end = s, s.wall+s.new.leaseUntil*1000-s.now
		}
	}
	return last, end
}

// disturbed reports whether something may have kept an attempt's outcome from being stored until then.
func (l *Ledger) disturbed(a *attempt, until int64) bool {
	p := l.processes[a.process]
	return p.last < until && !p.ended || l.stalled(a.ended, until, p.app) || l.hit(a.ended, until, p.app,
		history.TouchesApp, history.TouchesDatabase, history.TouchesAppToDB, history.TouchesLocks, history.TouchesDBClock)
}

// checkEffects: the effects of a transactional handler or compensation are counted in their own table. Each epoch
// that ended by the handler has exactly one, of the very attempt that is recorded; any other has none. A handler with effects outside has one at least.
func checkEffects(l *Ledger, c *Check) {
	outside := l.actingTypes()
	l.each(func(e *Entry) {
		rows, version := make(map[effectKey]int), make(map[effectKey]uint64)
		for _, r := range e.effects {
			key := effectKey{r.Epoch, r.Compensation}
			rows[key]++
			version[key] = r.Version
		}
		done := make(map[effectKey]*step)
		for i := range e.steps {
			s := &e.steps[i]
			if s.move == moveSuccess || s.move == moveCompensated {
				done[effectKey{s.new.epoch, s.move == moveCompensated}] = s
			}
		}
		for key, n := range rows {
			c.Looked++
			switch s := done[key]; {
			case n > 1 || s == nil:
				c.violate(e, e.allLines(), "%d committed effects in epoch %d (compensation: %v), recorded as done: %v", n, key.epoch, key.undo, s != nil)
			case version[key] != s.old.version:
				c.violate(e, append(e.lines(s.old.version), s.place), "recorded as done at version %d, and the effect is that of version %d", s.old.version, version[key])
			}
		}
		for key, s := range done {
			switch {
			case l.transactional(e, s.old.state) && rows[key] == 0:
				c.violate(e, append(e.lines(s.old.version), s.place), "recorded as done in epoch %d, and its effect is not there", key.epoch)
			case outside[actor{e.Type, key.undo}] && !e.acted(key):
				c.violate(e, append(e.lines(s.old.version), s.place), "recorded as done in epoch %d, and no attempt had its effect", key.epoch)
			}
		}
	})
}

type effectKey struct {
	epoch uint32
	undo  bool
}

// actor is a type's handler, or its compensation.
type actor struct {
	businessType string
	undo         bool
}

// actingTypes finds whose attempts write down effects outside the database.
func (l *Ledger) actingTypes() map[actor]bool {
	found := make(map[actor]bool)
	l.each(func(e *Entry) {
		for i := range e.attempts {
			if a := &e.attempts[i]; a.acted {
				found[actor{e.Type, a.compensation}] = true
			}
		}
	})
	return found
}

func (e *Entry) acted(key effectKey) bool {
	return slices.ContainsFunc(e.attempts, func(a attempt) bool {
		return a.acted && a.epoch == key.epoch && a.compensation == key.undo
	})
}
