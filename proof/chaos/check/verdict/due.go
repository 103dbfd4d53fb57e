package verdict

import "github.com/compensator-go/compensator/proof/chaos/history"

// checkEarly: by the database's own clock, as one statement's trigger read it, no claim takes an entry that is not
// due, or whose lease runs. A claim looks in one statement and writes in another; when the clock is set back between
// the two, it stands too early by that much, which is counted and left.
func checkEarly(l *Ledger, c *Check) {
	excused := 0
	l.each(func(e *Entry) {
		for i := range e.steps {
			s := &e.steps[i]
			if !s.claims() {
				continue
			}
			c.Looked++
			why, by := early(s)
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
		c.note("%d claims stand too early by less than the database's clock was set back about then; not judged", excused)
	}
}

// early tells by how many ms a claim came too soon, if it did. That of an insert is judged as one; see checkDue.
func early(s *step) (why string, by int64) {
	if s.move == moveInsert {
		return "", 0
	}
	if s.move == moveClaim && s.old.leaseUntil > max(s.nowMS(), s.old.nextAt) {
		return "while it was leased", s.old.leaseUntil - s.nowMS()
	}
	return "before it was due", s.old.nextAt - s.nowMS()
}

// checkDue: an entry comes due when it was asked to, no sooner and no later: after the delay it was recorded with, after
// what a handler asked for, or within what the library allows itself. What people ask for, the actions check judges. No
// move of the clock is an excuse: the statement that writes the moment is the one whose trigger tells the time.
func checkDue(l *Ledger, c *Check) {
	l.each(func(e *Entry) {
		for i := range e.steps {
			s := &e.steps[i]
			var wanted []delay
			switch s.move {
			case moveInsert:
				for _, in := range l.source(e) {
					wanted = append(wanted, exactly(in.DelayMS))
				}
			case moveRetry, moveUndoFailed, movePause:
				wanted = l.putOff(e.lastAttempt(s.old.version))
			}
			if len(wanted) == 0 {
				continue
			}
			c.Looked++
			if !s.dueIn(wanted) {
				c.violate(e, append(e.lines(s.old.version), s.place), "%s makes it due in %d ms; asked for was %v", s.move, s.new.nextAt-s.nowMS(), wanted)
			}
		}
	})
}

// delay is a span of time that something may be put off, ms.
type delay struct{ least, most int64 }

// lastMS is what the library adds to a delay, so that a fraction of a millisecond makes nothing early.
const lastMS = 1

func exactly(ms int64) delay { return delay{ms, ms + lastMS} }

// dueIn reports whether a step makes its entry due as one of these delays says.
func (s *step) dueIn(wanted []delay) bool {
	in := s.new.nextAt - s.nowMS()
	for _, d := range wanted {
		if in >= d.least-rounding && in <= d.most+rounding {
			return true
		}
	}
	return false
}

// putOff is how long an attempt's outcome may put its entry off. When the handler named the time, that is it.
func (l *Ledger) putOff(a *attempt) []delay {
	switch {
	case a != nil && (a.outcome == history.OutcomeRetryAfter || a.outcome == history.OutcomeSnooze):
		if a.batch > 0 { // a share that was to run alone, and was told to stop before it could, is due at once
			return []delay{exactly(a.after), exactly(0)}
		}
		return []delay{exactly(a.after)}
	case l.Run.PutOffMS > 0:
		return []delay{{0, l.Run.PutOffMS + lastMS}}
	}
	return nil
}
