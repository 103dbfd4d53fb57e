package verdict

import "slices"

// checkEffects: the effects of a transactional handler or compensation are counted in their own table. Each epoch
// that ended by the handler has exactly one, of the very attempt that is recorded; any other has none. A handler with effects outside has one at least.
func checkEffects(l *Ledger, c *Check) {
	outside := l.actingTypes()
	l.each(func(e *Entry) {
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
				c.violate(e, e.allLines(), "%d committed effects in epoch %d (compensation: %v), recorded as done: %v", n, key.epoch, key.undo, s != nil)
			case version[key] != s.old.version:
				c.violate(e, append(e.lines(s.old.version), s.place), "recorded as done at version %d, and the effect is that of version %d", s.old.version, version[key])
			}
		}
		for key, s := range done {
			switch {
			case l.transactional(e, s.old.state) && rows[key] == 0:
				c.violate(e, append(e.lines(s.old.version), s.place), "recorded as done in epoch %d, and its effect is not there", key.epoch)
			case outside[actor{e.Type, key.undo}] && !e.acted(key):
				c.violate(e, append(e.lines(s.old.version), s.place), "recorded as done in epoch %d, and no attempt had its effect", key.epoch)
			}
		}
	})
}

type effectKey struct {
	epoch uint32
	undo  bool
}

// actor is a type's handler, or its compensation.
type actor struct {
	businessType string
	undo         bool
}

// actingTypes finds whose attempts write down effects outside the database.
func (l *Ledger) actingTypes() map[actor]bool {
	found := make(map[actor]bool)
	l.each(func(e *Entry) {
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
