package verdict

import (
	"cmp"
	"maps"
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

type action struct {
	history.Action
	tx       *transaction // transaction of the caller (nil: the library's own transaction)
	answered int64        // time of its ActionEnd (0: no answer)
	err      string
	already  bool
	dead     bool
	undone   bool
	place    Place
}

func (a *action) tookEffect() certainty {
	did := effectDespiteError(a.err)
	switch {
	case a.undone, a.already:
		return never
	case a.answered == 0:
		did = maybe
	}
	if a.tx != nil {
		did = min(did, a.tx.committed())
	}
	return did
}

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

type call struct {
	*action
	surely bool // whether the action certainly changed this entry
}

type entryMove struct {
	id   uint64
	move string
}

func (d entryMove) compare(other entryMove) int {
	return cmp.Or(cmp.Compare(d.id, other.id), cmp.Compare(d.move, other.move))
}

// checkActions compares the actions of people and services with their moves. An action is a call of the library, for
// example Cancel. A move is the change of an entry's row that the audit table shows. checkActions requires:
//   - Each action that certainly took effect has its move in the history.
//   - Each move does what an action requested, and lies within the time of that call.
//   - There are no more moves than actions that may have taken effect.
//
// The move of an action without an answer may come at any later time, because the statement may still be on its way to
// the server.
func checkActions(l *Ledger, c *Check) {
	calls := l.callsByMove(c)
	there := make(map[entryMove][]*step)
	l.eachEntry(func(e *Entry) {
		for i := range e.steps {
			s := &e.steps[i]
			if actionOf[s.move] == "" {
				continue
			}
			d := entryMove{e.ID, s.move}
			there[d] = append(there[d], s)
			switch made := calls[d]; {
			case len(there[d]) > len(made):
				c.violate(e, append(places(made), s.place), "%s happened %d times, and at most %d calls may have made it", s.move, len(there[d]), len(made))
			case !slices.ContainsFunc(made, func(a call) bool { return l.mayMake(a, s) }):
				c.violate(e, append(places(made), s.place), "%s happened, and no call by that time asked for it", s.move)
			}
		}
	})
	for _, d := range slices.SortedFunc(maps.Keys(calls), entryMove.compare) {
		n := 0
		for _, a := range calls[d] {
			if !a.surely {
				continue
			}
			if n++; !slices.ContainsFunc(there[d], func(s *step) bool { return l.mayMake(a, s) }) {
				c.violate(l.Entries[d.id], []Place{a.place}, "%s was answered, and is not in the audit", d.move)
			}
		}
		if n > len(there[d]) {
			c.violate(l.Entries[d.id], places(calls[d]), "%s was answered %d times, and is in the audit %d times", d.move, n, len(there[d]))
		}
	}
}

// callsByMove groups the calls by the entry and the move that each call may have caused. A call that names an
// idempotency key may have changed any entry that ever had this key.
func (l *Ledger) callsByMove(c *Check) map[entryMove][]call {
	calls := make(map[entryMove][]call)
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
		took := a.tookEffect()
		if a.already && !l.cancelledBefore(a, rows[a.Key]) {
			c.violate(nil, []Place{a.place}, "%s of %q answered that it was already cancelled, and it was not", a.Action.Action, a.Key)
		}
		if took == surely && len(ids) == 0 {
			c.violate(nil, []Place{a.place}, "%s of %q was answered, and no such entry ever existed", a.Action.Action, a.Key)
		}
		for _, id := range ids {
			if d := (entryMove{id, a.move()}); took != never {
				calls[d] = append(calls[d], call{a, took == surely && len(ids) == 1})
			}
		}
	}
	return calls
}

func (l *Ledger) cancelledBefore(a *action, named []*Entry) bool {
	if e := l.Entries[a.ID]; e != nil {
		named = append(slices.Clone(named), e)
	}
	return slices.ContainsFunc(named, func(e *Entry) bool {
		return slices.ContainsFunc(e.steps, func(s step) bool {
			return s.move == moveCancel && (s.wall <= a.answered+jump || !l.compares(&s, a.answered))
		})
	})
}

// mayMake reports whether a call, the parameter a, can have caused a step of an entry, the parameter s. Three things
// must be true:
//   - The step lies between the beginning of the call and the answer, if there is an answer. mayMake does not check
//     this if the database's clock was moved at that time.
//   - If the step sets a due time, the call requested this time.
//   - If the step ended the entry and the call was answered, the answer says correctly whether the entry was dead
//     before.
func (l *Ledger) mayMake(a call, s *step) bool {
	answered := a.answered != 0 && a.err == ""
	inTime := s.wall+jump >= a.At && (!answered || s.wall <= a.answered+jump)
	if answered && endsEntry(s.move) && a.dead != (s.old.state == dead) {
		return false
	}
	return (inTime || !l.compares(s, a.At)) && (!setsDueTime(s.move) || s.dueIn([]delay{exactly(a.DelayMS)}))
}

func endsEntry(move string) bool { return move == moveComplete || move == moveCancel }

func setsDueTime(move string) bool {
	return move == moveReschedule || move == moveRequeue || move == moveRequeueUndo
}

func places(calls []call) (found []Place) {
	for _, a := range calls {
		found = append(found, a.place)
	}
	return found
}
