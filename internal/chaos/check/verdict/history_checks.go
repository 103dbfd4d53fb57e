package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/internal/chaos/history"
)

// checkLinear: each row's changes are a chain, and each link is a line of the contract.
func checkLinear(l *Ledger, c *Check) {
	l.each(func(e *Entry) {
		for _, p := range e.torn {
			c.violate(e, append(e.before(p), p), "a change starts from what the change before did not leave")
		}
		for i := range e.steps {
			s := &e.steps[i]
			c.Looked++
			switch {
			case s.move == "":
				c.violate(e, append(e.before(s.place), s.place), "a change that is no line of the contract: %s", describe(s))
			case s.claims() || s.move == moveRenew:
				l.checkLease(e, s, c)
			}
			switch {
			case s.move == moveOwnClaim:
				l.checkOwnClaim(e, s, c)
			case s.move == moveRelease && e.lastAttempt(s.old.version) != nil:
				c.violate(e, append(e.lines(s.old.version), s.place), "given back as if it had not run, and it had")
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
// by it.
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

// checkAttempts: an attempt ran after its claim was made; what its Entry said is what the claim left in the row, and it
// was the handler's or the compensation's turn. A lease that an insert wrote is its own process's: nobody else knows of
// it. Not judged is whether the lease still ran as the attempt began: the answer to a claim may come late, and a process
// may be stopped between that answer and its handler.
func checkAttempts(l *Ledger, c *Check) {
	l.each(func(e *Entry) {
		if len(e.steps) == 0 {
			return // a phantom
		}
		for i := range e.attempts {
			a := &e.attempts[i]
			c.Looked++
			claim := e.at(a.version)
			switch {
			case claim == nil:
				c.violate(e, a.places(), "ran at version %d, which the row never had", a.version)
			case !claim.claims():
				c.violate(e, append(a.places(), claim.place), "ran at version %d, which is no claim but: %s", a.version, claim.move)
			case a.state != claim.new.state || a.epoch != claim.new.epoch || a.nextAt != claim.new.nextAt || a.number != claim.attempt():
				c.violate(e, append(a.places(), claim.place), "ran with another state, epoch, due moment or attempt number than its claim left")
			case claim.move == moveInsert && len(l.source(e)) > 0 && !l.recorded(a.process, e):
				c.violate(e, append(a.places(), claim.place), "ran under the lease of its insert, in another process than the one that made it")
			case a.began+jump < claim.wall && !l.clock.moved(claim.seq):
				c.violate(e, append(a.places(), claim.place), "ran %d ms before it was claimed", (claim.wall-a.began)/1000)
			case a.compensation != (claim.new.state == compensating):
				c.violate(e, append(a.places(), claim.place), "ran its handler in the compensation's turn, or the other way round")
			}
		}
	})
}

// attempt is the number of the attempt that a claim begins.
func (s *step) attempt() int32 {
	if s.new.state == compensating {
		return s.new.compensateCount + 1
	}
	return s.new.processCount + 1
}

// checkContent: the content an attempt was given is the one that was inserted.
func checkContent(l *Ledger, c *Check) {
	l.each(func(e *Entry) {
		from := l.source(e)
		if len(from) == 0 {
			return // a phantom
		}
		for i := range e.attempts {
			a := &e.attempts[i]
			c.Looked++
			matches := false
			for _, in := range from {
				matches = matches || in.Hash == a.hash && in.Type == e.Type
			}
			if !matches {
				c.violate(e, append(a.places(), from[0].place), "ran with content %d; recorded was %d", a.hash, from[0].Hash)
			}
		}
	})
}

// checkCompensation: the undo runs only while its entry is compensating, after a failure was recorded in the same
// epoch or a person asked for it, and never in an epoch with a success.
func checkCompensation(l *Ledger, c *Check) {
	l.each(func(e *Entry) {
		success, begun := make(map[uint32]Place), make(map[uint32]bool)
		for i := range e.steps {
			s := &e.steps[i]
			switch s.move {
			case moveSuccess, moveComplete:
				success[s.new.epoch] = s.place
			case moveExhausted, moveCrashedUndo, moveRequeueUndo:
				begun[s.new.epoch] = true
			}
			l.checkUndoOf(e, s, c)
		}
		for i := range e.attempts {
			a := &e.attempts[i]
			if !a.compensation {
				continue
			}
			c.Looked++
			if at, ok := success[a.epoch]; ok {
				c.violate(e, append(a.places(), at), "was compensated in epoch %d, which succeeded", a.epoch)
			}
			if !begun[a.epoch] {
				c.violate(e, a.places(), "was compensated in epoch %d, which no failure, crash or person brought there", a.epoch)
			}
		}
	})
}

// checkUndoOf: giving up leads to the compensation of a type that has one, and to a person otherwise.
func (l *Ledger) checkUndoOf(e *Entry, s *step, c *Check) {
	t := l.typeOf(e)
	if t == nil {
		return
	}
	undoes := t.Compensation != history.CompensationNone
	switch {
	case (s.move == moveExhausted || s.move == moveCrashedUndo) && !undoes:
		c.violate(e, []Place{s.place}, "is to be compensated, and its type has no compensation")
	case s.move == moveDead && undoes:
		c.violate(e, []Place{s.place}, "is dead without having been compensated")
	case s.move == moveCrashedUndo && !t.CompensateCrashed:
		c.violate(e, []Place{s.place}, "is compensated after crashes, which its type does not ask for")
	case s.move == moveCrashed && t.CompensateCrashed && undoes && s.old.state != compensating:
		c.violate(e, []Place{s.place}, "is dead after crashes, and its type asks for the compensation")
	}
}
