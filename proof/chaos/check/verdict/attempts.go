package verdict

import "slices"

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
			case a.began+jump < claim.wall && l.compares(claim, a.began):
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
			if !slices.ContainsFunc(from, func(in *insert) bool { return in.Hash == a.hash }) {
				c.violate(e, append(a.places(), from[0].place), "ran with content %d; recorded was %d", a.hash, from[0].Hash)
			}
		}
	})
}
