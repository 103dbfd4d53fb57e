package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

// If a row differs from its last image in the audit, it was changed without the triggers, or the database lost a
// commit.
func checkAudit(l *Ledger, c *Check) {
	l.eachEntry(func(e *Entry) {
		c.Looked++
		last, exists := e.last()
		switch {
		case exists && e.row == nil:
			c.violate(e, e.lines(last.version), "is in the audit at version %d, and not in the table", last.version)
		case !exists && e.row != nil:
			c.violate(e, []Place{e.rowPlace}, "is in the table, and not in the audit")
		case exists && !last.is(e.row):
			c.violate(e, append(e.lines(last.version), e.rowPlace), "has other columns in the table than in the audit")
		case exists && (e.row.Key != e.Key || e.row.Type != e.Type):
			c.violate(e, []Place{e.rowPlace}, "has another key or type in the table than in the audit")
		}
	})
}

func (i image) is(r *history.Row) bool {
	return i == image{
		version: r.Version, token: tokenHash(r.Token), nextAt: r.NextAt, leaseUntil: r.LeaseUntil, epoch: r.Epoch,
		processCount: int32(r.ProcessCount), compensateCount: int32(r.CompensateCount), deliveryCount: int32(r.DeliveryCount),
		state: r.State, endedBy: r.EndedBy,
	}
}

// A dead entry is not purged, because a person must look at it. An entry that a person settled is kept as evidence.
var purged = []int8{succeeded, compensated, cancelled}

// One statement finds the row and another deletes it, and both read the clock. If the clock moved at about that time,
// checkPurge does not judge the age.
func checkPurge(l *Ledger, c *Check) {
	l.eachEntry(func(e *Entry) {
		for i := range e.steps {
			s := &e.steps[i]
			if s.move != moveDelete {
				continue
			}
			c.Looked++
			age := s.nowMS() - s.old.nextAt
			switch {
			case !l.purges():
				c.violate(e, e.lines(s.old.version), "was deleted in a run without a purge")
			case !slices.Contains(purged, s.old.state):
				c.violate(e, e.lines(s.old.version), "was deleted in state %d", s.old.state)
			case age < l.Run.PurgeAgeMS-rounding && !l.clock.moved(s.seq):
				c.violate(e, e.lines(s.old.version), "was deleted %d ms after its end; the purge age is %d ms", age, l.Run.PurgeAgeMS)
			}
		}
	})
}

func (l *Ledger) purges() bool { return l.Run.PurgeAgeMS > 0 }

func checkUnknownTypes(l *Ledger, c *Check) {
	l.eachEntry(func(e *Entry) {
		if len(e.steps) == 0 || l.served(e) {
			return
		}
		c.Looked++
		for i := range e.attempts {
			c.violate(e, e.attempts[i].places(), "ran, and its type has no handler")
		}
		for i := range e.steps {
			s := &e.steps[i]
			switch {
			case s.move == moveInsert && s.new.deliveryCount > 0:
				c.violate(e, []Place{s.place}, "was born claimed, and nobody serves its type")
			case s.move == moveInsert, s.move == moveTouch, s.move == moveDelete, actionOf[s.move] != "":
			default:
				c.violate(e, []Place{s.place}, "was changed (%s), and its type has no handler", s.move)
			}
		}
	})
}
