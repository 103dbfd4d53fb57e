package verdict

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/compensator-go/compensator/internal/chaos/history"
)

// call is an action that may have changed an entry.
type call struct {
	*action
	surely bool // it has changed this very entry
}

// doneTo is a move of an entry that an action makes.
type doneTo struct {
	id   uint64
	move string
}

func (d doneTo) compare(other doneTo) int {
	return cmp.Or(cmp.Compare(d.id, other.id), cmp.Compare(d.move, other.move))
}

// checkActions: each of a person's and a service's moves that certainly happened is there, as it was asked for and
// within the time of its call; and no more are there than may have happened. A call with no answer, or with that of a
// broken connection, may have done its work, and at any time after: its statement may still be on its way.
func checkActions(l *Ledger, c *Check) {
	calls := l.callsByMove(c)
	there := make(map[doneTo][]*step)
	l.each(func(e *Entry) {
		for i := range e.steps {
			s := &e.steps[i]
			if actionOf[s.move] == "" {
				continue
			}
			d := doneTo{e.ID, s.move}
			there[d] = append(there[d], s)
			switch made := calls[d]; {
			case len(there[d]) > len(made):
				c.violate(e, append(places(made), s.place), "%s, %d times, and nobody may have done it more than %d times", s.move, len(there[d]), len(made))
			case !slices.ContainsFunc(made, func(a call) bool { return l.does(a, s) }):
				c.violate(e, append(places(made), s.place), "%s, and nobody asked for it so, by then", s.move)
			}
		}
	})
	for _, d := range slices.SortedFunc(maps.Keys(calls), doneTo.compare) {
		n := 0
		for _, a := range calls[d] {
			if !a.surely {
				continue
			}
			if n++; !slices.ContainsFunc(there[d], func(s *step) bool { return l.does(a, s) }) {
				c.violate(l.Entries[d.id], []Place{a.place}, "%s was answered, and is not there", d.move)
			}
		}
		if n > len(there[d]) {
			c.violate(l.Entries[d.id], places(calls[d]), "%s was answered %d times, and is there %d times", d.move, n, len(there[d]))
		}
	}
}

// callsByMove finds what may have been done to each entry. An action on a key may have hit any entry that ever had it.
func (l *Ledger) callsByMove(c *Check) map[doneTo][]call {
	calls := make(map[doneTo][]call)
	rows := l.entriesByKey()
	for i := range l.actions {
		a := &l.actions[i]
		c.Looked++
		var ids []uint64
		for _, e := range rows[a.Key] {
			ids = append(ids, e.ID)
		}
		if len(ids) == 0 && a.ID != 0 {
			ids = []uint64{a.ID}
		}
		took := a.took()
		if took == surely && len(ids) == 0 {
			c.violate(nil, []Place{a.place}, "%s of %q was answered, and no such entry was ever there", a.Action.Action, a.Key)
		}
		for _, id := range ids {
			if d := (doneTo{id, a.move()}); took != never {
				calls[d] = append(calls[d], call{a, took == surely && len(ids) == 1})
			}
		}
	}
	return calls
}

// move is what an action makes of its entry.
func (a *action) move() string {
	if a.Action.Action == history.ActionRequeue && a.Compensate {
		return moveRequeueUndo
	}
	for move, action := range actionOf {
		if action == a.Action.Action && move != moveRequeueUndo {
			return move
		}
	}
	return ""
}

// does reports whether a step may be what a call did: it is of the time of the call, and makes the entry due as was
// asked for.
func (l *Ledger) does(a call, s *step) bool {
	answered := a.answered != 0 && a.err == ""
	inTime := s.wall+jump >= a.At && (!answered || s.wall <= a.answered+jump)
	return (inTime || l.clock.moved(s.seq)) && (!delays(s.move) || s.dueIn([]delay{exactly(a.DelayMS)}))
}

// delays reports whether a move of a person's makes its entry due at a time they name.
func delays(move string) bool {
	return move == moveReschedule || move == moveRequeue || move == moveRequeueUndo
}

func places(calls []call) (found []Place) {
	for _, a := range calls {
		found = append(found, a.place)
	}
	return found
}

// checkProducers: no deadlock is between a producer's statement and one of the library's own. Lock waits of producers
// are told, and where they came from; they are not judged, as the server does not say whom they waited for: another
// producer of the same key is as good a guess.
func checkProducers(l *Ledger, c *Check) {
	for i := range l.Deadlocks {
		d := &l.Deadlocks[i]
		var roles []string
		for _, s := range d.Statements {
			roles = append(roles, role(s))
		}
		if slices.Contains(roles, roleProducer) && slices.Contains(roles, roleLibrary) {
			c.violate(nil, nil, "a deadlock between a producer's statement and the library's: %q", d.Statements)
		}
		c.note("deadlock between: %s", strings.Join(roles, ", "))
	}
	c.Notes = counted(c.Notes)
	waits, outside, deadlocks := 0, 0, 0
	for i := range l.inserts {
		in := &l.inserts[i]
		c.Looked++
		switch in.err {
		case history.ErrLockWait:
			waits++
			if !l.hit(in.At-recovery, in.At, "", history.TouchesLocks, history.TouchesDatabase, history.TouchesAppToDB) {
				outside++
			}
		case history.ErrDeadlock:
			deadlocks++
		}
	}
	c.note("inserts refused: %d by a lock wait (%d of them while no fault held locks or the database), %d by a deadlock", waits, outside, deadlocks)
}

// Whose a statement of a deadlock report is.
const (
	roleNemesis  = "nemesis"
	roleLibrary  = "library"
	roleProducer = "producer"
	roleOther    = "other"
)

// role tells by the text of a statement whose it is. A service's CancelTx and the like are "other": they lock rows
// in the service's own transaction.
func role(statement string) string {
	s := strings.Join(strings.Fields(strings.ToUpper(statement)), " ")
	engine := strings.Contains(s, "VERSION=VERSION+1") || strings.Contains(s, "SET LEASE_UNTIL=") || strings.Contains(s, "SKIP LOCKED")
	switch {
	case strings.Contains(s, strings.ToUpper(history.NemesisComment)):
		return roleNemesis
	case engine, strings.HasPrefix(s, "DELETE") && strings.Contains(s, "STATE+0="):
		return roleLibrary
	case strings.HasPrefix(s, "INSERT INTO") && strings.Contains(s, "IDEMPOTENT_ID"), strings.Contains(s, "/* PRODUCER */"):
		return roleProducer
	}
	return roleOther
}

// counted folds equal lines into one with their number.
func counted(lines []string) []string {
	count := make(map[string]int)
	var order []string
	for _, s := range lines {
		if count[s]++; count[s] == 1 {
			order = append(order, s)
		}
	}
	for i, s := range order {
		order[i] = plural(count[s], s)
	}
	return order
}
