package verdict

import "slices"

// checkLinear: each row's changes are a chain, and each link is a line of the contract.
func checkLinear(l *Ledger, c *Check) {
	l.each(func(e *Entry) {
		for _, p := range e.torn {
			c.violate(e, append(e.before(p), p), "a change starts from what the change before did not leave")
		}
		for i := range e.steps {
			s := &e.steps[i]
			c.Looked++
			if s.claims() || s.move == moveRenew {
				l.checkLease(e, s, c)
			}
			switch s.move {
			case "":
				c.violate(e, append(e.before(s.place), s.place), "a change that is no line of the contract: %s", describe(s))
			case moveOwnClaim:
				l.checkOwnClaim(e, s, c)
			case moveRelease:
				l.checkRelease(e, s, c)
			}
		}
	})
}

// checkLease: a lease is as long as its type's.
func (l *Ledger) checkLease(e *Entry, s *step, c *Check) {
	t := l.typeOf(e)
	if t == nil || t.LeaseMS == 0 {
		return
	}
	if got := s.new.leaseUntil - s.nowMS(); abs(got-t.LeaseMS) > rounding {
		c.violate(e, []Place{s.place}, "%s with a lease of %d ms; its type's is %d", s.move, got, t.LeaseMS)
	}
}

// checkOwnClaim: a delivery is not counted again only for the process whose insert counted it, and which ran nothing
// by it. Whose a claim was that nobody ran, the history does not tell.
func (l *Ledger) checkOwnClaim(e *Entry, s *step, c *Check) {
	for i := range e.attempts {
		switch a := &e.attempts[i]; {
		case a.version == s.old.version:
			c.violate(e, append(a.places(), s.place), "claimed again after it ran, and the delivery is not counted")
		case a.version == s.new.version && !l.recorded(a.process, e):
			c.violate(e, append(a.places(), s.place), "the delivery to another process than the one that recorded it is not counted")
		}
	}
}

// checkRelease: only a delivery that ran nothing is taken back.
func (l *Ledger) checkRelease(e *Entry, s *step, c *Check) {
	if a := e.lastAttempt(s.old.version); a != nil {
		c.violate(e, append(a.places(), s.place), "given back as if it had not run, and it had")
	}
}

// recorded reports whether an entry may be what a process has inserted.
func (l *Ledger) recorded(process int32, e *Entry) bool {
	return slices.ContainsFunc(l.source(e), func(in *insert) bool { return in.tx.process == process })
}

// before is the line of the change before the one at p.
func (e *Entry) before(p Place) []Place {
	for i := 1; i < len(e.steps); i++ {
		if e.steps[i].place == p {
			return []Place{e.steps[i-1].place}
		}
	}
	return nil
}
