package verdict

import "github.com/compensator-go/compensator/proof/chaos/history"

// checkEarly requires that no claim takes an entry that is not due or is leased.
//
// A claim selects rows in one statement and updates them in another. The database's clock may be set back between the
// two statements. Then the update seems to come before the due time, although the entry was due when it was selected.
// checkEarly counts a claim that looks early by no more than the clock was set back, and does not judge it.
func checkEarly(l *Ledger, c *Check) {
	excused := 0
	l.eachEntry(func(e *Entry) {
		for i := range e.steps {
			s := &e.steps[i]
			if !s.claims() {
				continue
			}
			c.Looked++
			why, by := earliness(s)
			switch {
			case by <= 0:
			case by*1000 <= l.clock.setBack(s.seq)+jump && l.clock.moved(s.seq):
				excused++
			default:
				c.violate(e, append(e.lines(s.old.version), s.place), "claimed %s, %d ms too early", why, by)
			}
		}
	})
	if excused > 0 {
		c.note("%d claims look early by no more than the database's clock was set back at that time; not judged", excused)
	}
}

// earliness does not judge a claim made by an insert, because checkDue judges inserts.
func earliness(s *step) (why string, by int64) {
	if s.move == moveInsert {
		return "", 0
	}
	if s.move == moveClaim && s.old.leaseUntil > max(s.nowMS(), s.old.nextAt) {
		return "while it was leased", s.old.leaseUntil - s.nowMS()
	}
	return "before it was due", s.old.nextAt - s.nowMS()
}

// checkDue requires that an entry becomes due after the right delay.
//
// checkActions judges the delays that people ask for. A wrong due time is a violation even if a clock was moved,
// because the statement that writes the due time also reads the clock.
func checkDue(l *Ledger, c *Check) {
	l.eachEntry(func(e *Entry) {
		for i := range e.steps {
			s := &e.steps[i]
			var wanted []delay
			switch s.move {
			case moveInsert:
				for _, in := range l.possibleInserts(e) {
					wanted = append(wanted, exactly(in.DelayMS))
				}
			case moveRetry, moveUndoFailed, movePause:
				wanted = l.allowedDelays(e.lastAttempt(s.old.version))
			}
			if len(wanted) == 0 {
				continue
			}
			c.Looked++
			if !s.dueIn(wanted) {
				c.violate(e, append(e.lines(s.old.version), s.place), "%s makes it due in %d ms; requested were %v", s.move, s.new.nextAt-s.nowMS(), wanted)
			}
		}
	})
}

type delay struct{ least, most int64 } // in ms

// The library adds roundUpMS to every delay, so that a fraction of a millisecond never makes an entry due early.
const roundUpMS = 1

func exactly(ms int64) delay { return delay{ms, ms + roundUpMS} }

func (s *step) dueIn(wanted []delay) bool {
	in := s.new.nextAt - s.nowMS()
	for _, d := range wanted {
		if in >= d.least-rounding && in <= d.most+rounding {
			return true
		}
	}
	return false
}

// allowedDelays returns the delays after which the entry may become due. If the handler asked for a delay, only this
// delay is right, except in a batch. Nil means that any delay is right.
func (l *Ledger) allowedDelays(a *attempt) []delay {
	switch {
	case a != nil && (a.outcome == history.OutcomeRetryAfter || a.outcome == history.OutcomeSnooze):
		// If a batch times out, the library ignores the verdicts of its handler, and each entry waits to run alone. If
		// the process stops during this wait, the entry becomes due at once.
		if a.batch > 0 {
			return []delay{exactly(a.after), exactly(0)}
		}
		return []delay{exactly(a.after)}
	case l.Run.PutOffMS > 0:
		return []delay{{0, l.Run.PutOffMS + roundUpMS}}
	}
	return nil
}
