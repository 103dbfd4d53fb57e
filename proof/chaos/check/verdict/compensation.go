package verdict

import "github.com/compensator-go/compensator/proof/chaos/history"

// checkCompensation requires a reason for each compensation: in the same epoch, an attempt failed, a process crashed or
// a person asked for it.
func checkCompensation(l *Ledger, c *Check) {
	l.eachEntry(func(e *Entry) {
		success, begun, ended := make(map[uint32]Place), make(map[uint32]bool), make(map[uint32]Place)
		for i := range e.steps {
			s := &e.steps[i]
			switch s.move {
			case moveSuccess, moveComplete:
				success[s.new.epoch] = s.place
			case moveCancel:
				ended[s.new.epoch] = s.place
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
			if at, ok := ended[a.epoch]; ok {
				c.violate(e, append(a.places(), at), "was compensated in epoch %d, which was cancelled", a.epoch)
			}
			if !begun[a.epoch] {
				c.violate(e, a.places(), "was compensated in epoch %d, without a failure, a crash or a person's request in that epoch", a.epoch)
			}
		}
	})
}

// checkUndoOf requires that an entry without attempts left is compensated if its type has a compensation. After
// crashes, the entry is compensated only if its type asks for that (CompensateCrashed).
func (l *Ledger) checkUndoOf(e *Entry, s *step, c *Check) {
	t := l.typeOf(e)
	if t == nil {
		return
	}
	undoes := t.Compensation != history.CompensationNone
	switch {
	case (s.move == moveExhausted || s.move == moveCrashedUndo) && !undoes:
		c.violate(e, []Place{s.place}, "moved to compensation, and its type has none")
	case s.move == moveDead && undoes:
		c.violate(e, []Place{s.place}, "is dead without having been compensated")
	case s.move == moveCrashedUndo && !t.CompensateCrashed:
		c.violate(e, []Place{s.place}, "moved to compensation after crashes, and its type does not ask for that")
	case s.move == moveCrashed && t.CompensateCrashed && undoes && s.old.state != compensating:
		c.violate(e, []Place{s.place}, "is dead after crashes, and its type asks for a compensation")
	}
}
