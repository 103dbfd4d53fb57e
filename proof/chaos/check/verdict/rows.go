package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

// checkAudit: the audit is whole. A row that differs from its last image was changed past the triggers, or the
// database lost a commit, or kept one of the two.
func checkAudit(l *Ledger, c *Check) {
	l.each(func(e *Entry) {
		c.Looked++
		last, exists := e.last()
		switch {
		case exists && e.row == nil:
			c.violate(e, e.lines(last.version), "is in the audit at version %d, and not in the table", last.version)
		case !exists && e.row != nil:
			c.violate(e, []Place{e.rowPlace}, "is in the table, and the audit has it not")
		case exists && !last.is(e.row):
			c.violate(e, append(e.lines(last.version), e.rowPlace), "stands otherwise in the table than in the audit")
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

// purged are the states that Purge takes when it is told none: what is dead waits for a person, and what a person has
// settled is kept for whoever asks.
var purged = []int8{succeeded, compensated, cancelled}

// checkPurge: a row goes only from a state that Purge takes, and as old as Purge was told. Two statements read the
// clock, the one that finds the row and the one that deletes it, so one about a move of the clock is not judged by age.
func checkPurge(l *Ledger, c *Check) {
	l.each(func(e *Entry) {
		for i := range e.steps {
			s := &e.steps[i]
			if s.move != moveDelete {
				continue
			}
			c.Looked++
			age := s.nowMS() - s.old.nextAt
			switch {
			case !l.purges():
				c.violate(e, e.lines(s.old.version), "was deleted, and nobody purges")
			case !slices.Contains(purged, s.old.state):
				c.violate(e, e.lines(s.old.version), "was deleted in state %d", s.old.state)
			case age < l.Run.PurgeAgeMS-rounding && !l.clock.moved(s.seq):
				c.violate(e, e.lines(s.old.version), "was deleted %d ms after its end; purge takes what is older than %d", age, l.Run.PurgeAgeMS)
			}
		}
	})
}

func (l *Ledger) purges() bool { return l.Run.PurgeAgeMS > 0 }

// checkUnknownTypes: an entry whose type no process serves waits as it was inserted, but for what people do.
func checkUnknownTypes(l *Ledger, c *Check) {
	l.each(func(e *Entry) {
		if len(e.steps) == 0 || l.served(e) {
			return
		}
		c.Looked++
		for i := range e.attempts {
			c.violate(e, e.attempts[i].places(), "ran, and nobody serves its type")
		}
		for i := range e.steps {
			s := &e.steps[i]
			switch {
			case s.move == moveInsert && s.new.deliveryCount > 0:
				c.violate(e, []Place{s.place}, "was born claimed, and nobody serves its type")
			case s.move == moveInsert, s.move == moveTouch, s.move == moveDelete, actionOf[s.move] != "":
			default:
				c.violate(e, []Place{s.place}, "was changed (%s), and nobody serves its type", s.move)
			}
		}
	})
}
