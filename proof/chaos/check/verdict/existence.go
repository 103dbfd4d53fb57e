package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

func checkLost(l *Ledger, c *Check) {
	rows := l.entriesByKey()
	for i := range l.inserts {
		in := &l.inserts[i]
		here := rows[in.Key]
		switch {
		case in.tx.committed() != surely || in.undone || in.err != "" || !in.answered:
			continue
		case in.dup && !slices.ContainsFunc(here, func(e *Entry) bool { return l.mayFind(in, e) }):
			c.violate(nil, []Place{in.place}, "%q was answered as a duplicate, and no such entry existed", in.Key)
		case !in.dup && !slices.ContainsFunc(here, in.mayHaveMade):
			c.violate(nil, []Place{in.place}, "%q was committed, and its entry is not in the table", in.Key)
		}
		c.Looked++
	}
	if l.marks[history.MarkQuiescent] == 0 {
		c.violate(nil, nil, "the run never came to rest")
		c.note("the dumps may be from different times, and that alone can violate attempts, effects, compensation, audit and queue")
	}
	l.eachEntry(func(e *Entry) {
		last, exists := e.last()
		if !exists || terminal(last.state) || !l.served(e) {
			return
		}
		if e.row == nil || e.row.NextAt*1000 > e.row.DBNow {
			return
		}
		c.violate(e, append(e.lines(last.version), e.rowPlace), "left in state %d, although due %d ms before the end", last.state, e.row.DBNow/1000-e.row.NextAt)
	})
}

func (in *insert) mayHaveMade(e *Entry) bool {
	return (in.id == 0 || in.id == e.ID) && e.Type == in.Type
}

// While a purge is deleting the entry, the insert may still see it. After the purge it cannot.
func (l *Ledger) mayFind(in *insert, e *Entry) bool {
	gone := e.deletion()
	return (in.id == 0 || in.id == e.ID) && (gone == nil || gone.wall+jump >= in.At || !l.compares(gone, in.At))
}

func (l *Ledger) entriesByKey() map[string][]*Entry {
	rows := make(map[string][]*Entry, len(l.Entries))
	l.eachEntry(func(e *Entry) {
		if len(e.steps) > 0 {
			rows[e.Key] = append(rows[e.Key], e)
		}
	})
	return rows
}

func (l *Ledger) possibleInserts(e *Entry) (found []*insert) {
	for _, n := range l.keys[e.Key] {
		if in := &l.inserts[n]; in.madeRow() != never && in.mayHaveMade(e) {
			found = append(found, in)
		}
	}
	return found
}

func checkPhantom(l *Ledger, c *Check) {
	rows := l.entriesByKey()
	l.eachEntry(func(e *Entry) {
		c.Looked++
		if len(e.steps) == 0 {
			c.violate(e, e.allLines(), "ran or had an effect, and was never in the table")
			return
		}
		from := l.possibleInserts(e)
		if len(from) == 0 {
			c.violate(e, append(l.insertPlaces(e.Key), e.allLines()...), "is in the table, and every transaction that inserted it certainly failed")
			return
		}
		if slices.ContainsFunc(rows[e.Key], e.overlaps) {
			c.violate(e, e.allLines(), "is the second row of one idempotency key")
		}
		asked := from[0].tx.asked
		for _, in := range from {
			asked = min(asked, in.tx.asked)
		}
		for i := range e.attempts {
			if a := &e.attempts[i]; a.began < asked {
				c.violate(e, append(a.places(), from[0].place), "ran %d µs before its commit was requested", asked-a.began)
			}
		}
	})
}

func (e *Entry) overlaps(other *Entry) bool {
	inserted, gone := e.steps[0].seq, other.deletion()
	return other.steps[0].seq < inserted && (gone == nil || gone.seq > inserted)
}

func (l *Ledger) insertPlaces(key string) (found []Place) {
	for _, n := range l.keys[key] {
		found = append(found, l.inserts[n].place)
	}
	return found
}

func checkResolve(l *Ledger, c *Check) {
	rows := l.entriesByKey()
	for i := range l.resolved {
		r := &l.resolved[i]
		if r.Err != "" && r.Err != history.ErrNotFound {
			continue // Resolve did not know the result.
		}
		for _, n := range r.tx.inserts {
			in := &l.inserts[n]
			if in.Key != r.Key || in.dup || in.undone {
				continue
			}
			c.Looked++
			at := slices.IndexFunc(rows[r.Key], in.mayHaveMade)
			switch {
			case r.Err == "" && (at < 0 || rows[r.Key][at].ID != r.ID):
				c.violate(nil, []Place{in.place, r.place}, "Resolve found %q as entry %d, which was never in the table", r.Key, r.ID)
			case r.Err != "" && at >= 0:
				c.violate(rows[r.Key][at], []Place{in.place, r.place}, "is in the table, and Resolve answered that it was rolled back")
			}
		}
	}
}
