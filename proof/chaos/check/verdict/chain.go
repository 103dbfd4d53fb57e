package verdict

import "slices"

// checkLinear requires that each change starts from what the previous change left, and is one of the moves in
// moves.go.
func checkLinear(l *Ledger, c *Check) {
	l.eachEntry(func(e *Entry) {
		for _, p := range e.torn {
			c.violate(e, append(e.placeBefore(p), p), "a change does not start from the result of the change before")
		}
		for i := range e.steps {
			s := &e.steps[i]
			c.Looked++
			if s.claims() || s.move == moveRenew {
				l.checkLease(e, s, c)
			}
			switch s.move {
			case "":
				c.violate(e, append(e.placeBefore(s.place), s.place), "a change fits no line of the contract: %s", describe(s))
			case moveOwnClaim:
				l.checkOwnClaim(e, s, c)
			case moveRelease:
				l.checkRelease(e, s, c)
			}
		}
	})
}

func (l *Ledger) checkLease(e *Entry, s *step, c *Check) {
	t := l.typeOf(e)
	if t == nil || t.LeaseMS == 0 {
		return
	}
	if got := s.new.leaseUntil - s.nowMS(); abs(got-t.LeaseMS) > rounding {
		c.violate(e, []Place{s.place}, "%s with a lease of %d ms; the lease of its type is %d ms", s.move, got, t.LeaseMS)
	}
}

// checkOwnClaim judges a claim that leaves delivery_count unchanged. Only the process that inserted the entry with a
// lease may make such a claim, because its insert has already counted the delivery.
//
// If no attempt followed the claim, the history does not tell which process made it. checkOwnClaim does not judge such
// a claim.
func (l *Ledger) checkOwnClaim(e *Entry, s *step, c *Check) {
	for i := range e.attempts {
		switch a := &e.attempts[i]; {
		case a.version == s.old.version:
			c.violate(e, append(a.places(), s.place), "claimed again after it ran, and the delivery is not counted")
		case a.version == s.new.version && !l.recorded(a.process, e):
			c.violate(e, append(a.places(), s.place), "another process than the recording one claimed it, and the delivery is not counted")
		}
	}
}

func (l *Ledger) checkRelease(e *Entry, s *step, c *Check) {
	if a := e.lastAttempt(s.old.version); a != nil {
		c.violate(e, append(a.places(), s.place), "released without an outcome, although it had run")
	}
}

func (l *Ledger) recorded(process int32, e *Entry) bool {
	return slices.ContainsFunc(l.possibleInserts(e), func(in *insert) bool { return in.tx.process == process })
}

func (e *Entry) placeBefore(p Place) []Place {
	for i := 1; i < len(e.steps); i++ {
		if e.steps[i].place == p {
			return []Place{e.steps[i-1].place}
		}
	}
	return nil
}
