package verdict

import "slices"

// checkAttempts requires four things of each attempt:
//   - The attempt ran after its claim was made.
//   - Its Entry equals what the claim left in the row.
//   - The handler ran while the entry was waiting, the compensation while the entry was compensating.
//   - If the insert wrote the lease, the attempt ran in the process that inserted. No other process knows of that lease.
//
// The check does not require that the lease still ran when the attempt began. The answer to a claim may come late, and
// a process may be stopped between that answer and its handler.
func checkAttempts(l *Ledger, c *Check) {
	l.eachEntry(func(e *Entry) {
		if len(e.steps) == 0 {
			return // checkPhantom reports this case.
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

// attempt returns the number of the attempt that a claim begins.
func (s *step) attempt() int32 {
	if s.new.state == compensating {
		return s.new.compensateCount + 1
	}
	return s.new.processCount + 1
}

// checkContent requires that each attempt received the content that was inserted.
func checkContent(l *Ledger, c *Check) {
	l.eachEntry(func(e *Entry) {
		from := l.possibleInserts(e)
		if len(from) == 0 {
			return // checkPhantom reports this case.
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
