package verdict

import "slices"

// checkAttempts does not require that the lease still ran when the attempt began, because the answer to a claim may
// come late.
func checkAttempts(l *Ledger, c *Check) {
	l.eachEntry(func(e *Entry) {
		if len(e.steps) == 0 {
			return
		}
		for i := range e.attempts {
			a := &e.attempts[i]
			c.Looked++
			claim := e.stepThatWrote(a.version)
			switch {
			case claim == nil:
				c.violate(e, a.places(), "ran at version %d, which the row never had", a.version)
			case !claim.claims():
				c.violate(e, append(a.places(), claim.place), "ran at version %d, which was written by no claim, but by: %s", a.version, claim.move)
			case a.state != claim.new.state || a.epoch != claim.new.epoch || a.nextAt != claim.new.nextAt || a.number != claim.attempt():
				c.violate(e, append(a.places(), claim.place), "ran with another state, epoch, due time or attempt number than its claim left")
			case claim.move == moveInsert && len(l.possibleInserts(e)) > 0 && !l.recorded(a.process, e):
				c.violate(e, append(a.places(), claim.place), "ran under the lease of its insert, in another process than that of the insert")
			case a.began+jump < claim.wall && l.compares(claim, a.began):
				c.violate(e, append(a.places(), claim.place), "ran %d ms before it was claimed", (claim.wall-a.began)/1000)
			case a.compensation != (claim.new.state == compensating):
				c.violate(e, append(a.places(), claim.place), "ran its handler while compensating, or its compensation while waiting")
			}
		}
	})
}

func (s *step) attempt() int32 {
	if s.new.state == compensating {
		return s.new.compensateCount + 1
	}
	return s.new.processCount + 1
}

func checkContent(l *Ledger, c *Check) {
	l.eachEntry(func(e *Entry) {
		from := l.possibleInserts(e)
		if len(from) == 0 {
			return
		}
		for i := range e.attempts {
			a := &e.attempts[i]
			c.Looked++
			if !slices.ContainsFunc(from, func(in *insert) bool { return in.Hash == a.hash }) {
				c.violate(e, append(a.places(), from[0].place), "ran with content %d; recorded was %d", a.hash, from[0].Hash)
			}
		}
	})
}
