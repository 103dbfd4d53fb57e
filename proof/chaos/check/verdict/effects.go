package verdict

import "slices"

// checkEffects counts the committed effects of each epoch: exactly one row of a transactional handler whose attempt
// succeeded, otherwise none. A handler with effects outside the database may have more than one.
func checkEffects(l *Ledger, c *Check) {
	outside := l.actingTypes()
	l.eachEntry(func(e *Entry) {
		rows, version := make(map[effectKey]int), make(map[effectKey]uint64)
		for _, r := range e.effects {
			key := effectKey{r.Epoch, r.Compensation}
			rows[key]++
			version[key] = r.Version
		}
		done := make(map[effectKey]*step)
		for i := range e.steps {
			s := &e.steps[i]
			if s.move == moveSuccess || s.move == moveCompensated {
				done[effectKey{s.new.epoch, s.move == moveCompensated}] = s
			}
		}
		for key, n := range rows {
			c.Looked++
			switch s := done[key]; {
			case n > 1 || s == nil:
				c.violate(e, e.allLines(), "%d committed effects in epoch %d (compensation: %v), success recorded: %v", n, key.epoch, key.undo, s != nil)
			case version[key] != s.old.version:
				c.violate(e, append(e.lines(s.old.version), s.place), "success recorded at version %d, and the effect comes from version %d", s.old.version, version[key])
			}
		}
		for key, s := range done {
			switch {
			case l.transactional(e, s.old.state) && rows[key] == 0:
				c.violate(e, append(e.lines(s.old.version), s.place), "success recorded in epoch %d, without its effect", key.epoch)
			case outside[actor{e.Type, key.undo}] && !e.acted(key):
				c.violate(e, append(e.lines(s.old.version), s.place), "success recorded in epoch %d, and no attempt had an effect", key.epoch)
			}
		}
	})
}

type effectKey struct {
	epoch uint32
	undo  bool
}

type actor struct {
	businessType string
	undo         bool
}

func (l *Ledger) actingTypes() map[actor]bool {
	found := make(map[actor]bool)
	l.eachEntry(func(e *Entry) {
		for i := range e.attempts {
			if a := &e.attempts[i]; a.acted {
				found[actor{e.Type, a.compensation}] = true
			}
		}
	})
	return found
}

func (e *Entry) acted(key effectKey) bool {
	return slices.ContainsFunc(e.attempts, func(a attempt) bool {
		return a.acted && a.epoch == key.epoch && a.compensation == key.undo
	})
}
