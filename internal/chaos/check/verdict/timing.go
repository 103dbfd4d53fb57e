package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/internal/chaos/history"
)

// checkEarly: by the database's own clock, as one statement's trigger read it, no claim takes an entry that is not
// due, or whose lease runs; and nothing is due sooner than was asked for. Rows written while that clock was being
// moved are counted and left.
func checkEarly(l *Ledger, c *Check) {
	excused := 0
	l.each(func(e *Entry) {
		for i := range e.steps {
			s := &e.steps[i]
			early := l.early(e, s)
			if s.claims() || s.move == moveInsert {
				c.Looked++
			}
			switch {
			case early == "":
			case l.clock.moved(s.seq):
				excused++
			default:
				c.violate(e, append(e.lines(s.old.version), s.place), "%s", early)
			}
		}
	})
	if excused > 0 {
		c.note("%d steps stand too early that were written while the database's clock was being moved; not judged", excused)
	}
}

// early tells what a step did too soon.
func (l *Ledger) early(e *Entry, s *step) string {
	switch s.move {
	case moveClaim, moveOwnClaim:
		switch {
		case s.old.nextAt > s.nowMS():
			return "claimed before it was due"
		case s.old.leaseUntil > s.nowMS() && s.move != moveOwnClaim:
			return "claimed while it was leased"
		}
	case moveInsert:
		from := l.source(e)
		for _, in := range from {
			if s.new.nextAt >= s.nowMS()+in.DelayMS-rounding {
				return ""
			}
		}
		if len(from) > 0 {
			return "due sooner than was asked for"
		}
	case moveRetry, moveUndoFailed, movePause:
		asksFor := func(a *attempt) bool {
			return a.outcome == history.OutcomeRetryAfter || a.outcome == history.OutcomeSnooze
		}
		if a := e.lastAttempt(s.old.version); a != nil && asksFor(a) && s.new.nextAt < s.nowMS()+a.after-rounding {
			return "to run again sooner than its handler asked for"
		}
	}
	return ""
}

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
	switch {
	case unexplained*1000 <= claims*lostForNoReason:
	case l.overloaded():
		c.note("these are not judged: the machine was too busy for much of the run")
	default:
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
		if before != nil && (runs > 2 || before.process != a.process || !l.runsAgain(e, before)) {
			c.violate(e, append(before.places(), a.places()...), "one claim, version %d, ran twice", a.version)
		}
	}
}

// runsAgain reports whether an attempt may have been a batch's share that came to no verdict, so that its entry runs
// once more, alone. A batch may be one of one.
func (l *Ledger) runsAgain(e *Entry, a *attempt) bool {
	t := l.typeOf(e)
	inBatch := t != nil && t.Handler == history.HandlerBatch && !a.compensation && a.batch > 0 && a.ended != 0
	return inBatch && (a.outcome == history.OutcomeNoVerdict || a.cause == history.CauseTimeout || a.batch > 1)
}

// mayLose reports whether there is a reason for the lease that a claim found lapsed.
func (l *Ledger) mayLose(e *Entry, claim *step) bool {
	before := e.at(claim.old.version)
	if before == nil {
		return false
	}
	app := "" // nobody knows whose it was
	if a := e.lastAttempt(claim.old.version); a != nil {
		p := l.processes[a.process]
		if p.diedBefore(claim.wall) {
			return true
		}
		app = p.app
	} else if l.diedBetween(before.wall, claim.wall) {
		return true
	}
	return l.stalled(before.wall, claim.wall, app) || l.hit(before.wall, claim.wall, app, history.TouchesApp, history.TouchesDatabase,
		history.TouchesAppToDB, history.TouchesLocks, history.TouchesDBClock)
}

// diedBetween reports whether a process was killed between two moments.
func (l *Ledger) diedBetween(from, to int64) bool {
	return slices.ContainsFunc(l.processes, func(p process) bool { return p.killed && p.last >= from-recovery && p.last <= to })
}
