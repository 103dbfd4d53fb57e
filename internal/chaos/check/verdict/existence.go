package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/internal/chaos/history"
)

// checkLost: a commit that was acknowledged left its entries; and every entry, however its commit was answered,
// has come to its end unless it is not due yet.
func checkLost(l *Ledger, c *Check) {
	rows := l.entriesByKey()
	for i := range l.inserts {
		in := &l.inserts[i]
		here := rows[in.Key]
		switch {
		case in.tx.came() != surely || in.undone || in.err != "" || !in.answered:
			continue
		case in.dup && !slices.ContainsFunc(here, func(e *Entry) bool { return l.repeats(in, e) }):
			c.violate(nil, []Place{in.place}, "%q was answered as a duplicate, and no such entry was there", in.Key)
		case !in.dup && !slices.ContainsFunc(here, in.made):
			c.violate(nil, []Place{in.place}, "%q was committed, and its entry is not in the table", in.Key)
		}
		c.Looked++
	}
	if l.marks[history.MarkQuiescent] == 0 {
		c.violate(nil, nil, "the run never came to rest")
		c.note("the dumps may be of different moments: attempts, effects, compensation, audit and queue can be violated by that alone")
	}
	l.each(func(e *Entry) {
		last, exists := e.last()
		if !exists || terminal(last.state) || !l.served(e) {
			return
		}
		if e.row == nil || e.row.NextAt*1000 > e.row.DBNow {
			return // not due yet; without a row the audit check speaks
		}
		c.violate(e, append(e.lines(last.version), e.rowPlace), "forgotten in state %d: due %d ms before the end", last.state, e.row.DBNow/1000-e.row.NextAt)
	})
}

// made reports whether an entry is this insert's.
func (in *insert) made(e *Entry) bool {
	return (in.id == 0 || in.id == e.ID) && e.Type == in.Type
}

// repeats reports whether an insert can have found an entry in the table. One that is being purged may still be seen;
// one whose purge is over may not.
func (l *Ledger) repeats(in *insert, e *Entry) bool {
	gone := e.deletion()
	return (in.id == 0 || in.id == e.ID) && (gone == nil || gone.wall+jump >= in.At || l.clock.moved(gone.seq))
}

func (l *Ledger) entriesByKey() map[string][]*Entry {
	rows := make(map[string][]*Entry, len(l.Entries))
	l.each(func(e *Entry) {
		if len(e.steps) > 0 {
			rows[e.Key] = append(rows[e.Key], e)
		}
	})
	return rows
}

// source finds the inserts that may have made an entry.
func (l *Ledger) source(e *Entry) (found []*insert) {
	for _, n := range l.keys[e.Key] {
		if in := &l.inserts[n]; in.wrote() != never && in.made(e) {
			found = append(found, in)
		}
	}
	return found
}

// checkPhantom: a row comes from a transaction whose commit was asked for and did not certainly fail; and no
// attempt began before that was asked.
func checkPhantom(l *Ledger, c *Check) {
	rows := l.entriesByKey()
	l.each(func(e *Entry) {
		c.Looked++
		if len(e.steps) == 0 {
			c.violate(e, e.allLines(), "ran, or left an effect, and was never in the table")
			return
		}
		from := l.source(e)
		if len(from) == 0 {
			c.violate(e, append(l.askedFor(e.Key), e.allLines()...), "is in the table, and no transaction that may have committed inserted it")
			return
		}
		if slices.ContainsFunc(rows[e.Key], e.besides) {
			c.violate(e, e.allLines(), "is the second row of one idempotent id")
		}
		asked := from[0].tx.asked
		for _, in := range from {
			asked = min(asked, in.tx.asked)
		}
		for i := range e.attempts {
			if a := &e.attempts[i]; a.began < asked {
				c.violate(e, append(a.places(), from[0].place), "ran %d µs before its commit was asked for", asked-a.began)
			}
		}
	})
}

// besides reports whether an entry was inserted while another was in the table.
func (e *Entry) besides(other *Entry) bool {
	inserted, gone := e.steps[0].seq, other.deletion()
	return other.steps[0].seq < inserted && (gone == nil || gone.seq > inserted)
}

// checkResolve: an entry that Resolve found is there, and one that it did not find was rolled back for good.
func checkResolve(l *Ledger, c *Check) {
	rows := l.entriesByKey()
	for i := range l.resolved {
		r := &l.resolved[i]
		if r.Err != "" && r.Err != history.ErrNotFound {
			continue // it could not tell; one that never can leaves nothing to look at, which is vacuous
		}
		for _, n := range r.tx.inserts {
			in := &l.inserts[n]
			if in.Key != r.Key || in.dup || in.undone {
				continue
			}
			c.Looked++
			at := slices.IndexFunc(rows[r.Key], in.made)
			switch {
			case r.Err == "" && (at < 0 || rows[r.Key][at].ID != r.ID):
				c.violate(nil, []Place{in.place, r.place}, "Resolve found %q as entry %d, which was never in the table", r.Key, r.ID)
			case r.Err != "" && at >= 0:
				c.violate(rows[r.Key][at], []Place{in.place, r.place}, "is in the table, and Resolve answered that it was rolled back")
			}
		}
	}
}

func (l *Ledger) purges() bool { return l.Run.PurgeAgeMS > 0 }

// askedFor are the lines of all inserts under a key.
func (l *Ledger) askedFor(key string) (found []Place) {
	for _, n := range l.keys[key] {
		found = append(found, l.inserts[n].place)
	}
	return found
}

func (e *Entry) allLines() (found []Place) {
	for i := range e.steps {
		found = append(found, e.steps[i].place)
	}
	for i := range e.attempts {
		found = append(found, e.attempts[i].places()...)
	}
	return found
}

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
