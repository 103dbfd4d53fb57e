package verdict

import (
	"cmp"
	"maps"
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

// action is a manual action by a person or a service on an entry.
type action struct {
	history.Action
	tx       *transaction // transaction of the caller (nil: the library's own transaction)
	answered int64        // time of its ActionEnd (0: no answer)
	err      string
	already  bool // the answer said that the entry was already cancelled
	dead     bool // the answer said that the entry was dead
	undone   bool
	place    Place
}

// The method took returns whether an action changed its entry, as far as the history proves it.
func (a *action) took() certainty {
	did := failed(a.err)
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

// move returns the move that an action causes.
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

// call is an action that may have changed an entry.
type call struct {
	*action
	surely bool // whether the action certainly changed this entry
}

// doneTo identifies one move of one entry. It is the key of a map.
type doneTo struct {
	id   uint64
	move string
}

func (d doneTo) compare(other doneTo) int {
	return cmp.Or(cmp.Compare(d.id, other.id), cmp.Compare(d.move, other.move))
}

// checkActions requires that the moves of people and services match their actions:
//   - Each action that certainly happened has its move in the history, as requested, and within the time of its call.
//   - There are no more moves than actions that may have happened.
//
// An action without an answer, or with a broken connection, may take effect at any later time, because its statement
// may still be on its way.
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
				c.violate(e, append(places(made), s.place), "%s happened %d times, and at most %d calls may have made it", s.move, len(there[d]), len(made))
			case !slices.ContainsFunc(made, func(a call) bool { return l.does(a, s) }):
				c.violate(e, append(places(made), s.place), "%s happened, and no call by that time asked for it", s.move)
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
				c.violate(l.Entries[d.id], []Place{a.place}, "%s was answered, and is not in the audit", d.move)
			}
		}
		if n > len(there[d]) {
			c.violate(l.Entries[d.id], places(calls[d]), "%s was answered %d times, and is in the audit %d times", d.move, n, len(there[d]))
		}
	}
}

// callsByMove returns the calls that may have made each move of each entry. A call that names an idempotency key may
// have changed any entry that ever had this key.
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
		if a.already && !l.cancelledBefore(a, rows[a.Key]) {
			c.violate(nil, []Place{a.place}, "%s of %q answered that it was already cancelled, and it was not", a.Action.Action, a.Key)
		}
		if took == surely && len(ids) == 0 {
			c.violate(nil, []Place{a.place}, "%s of %q was answered, and no such entry ever existed", a.Action.Action, a.Key)
		}
		for _, id := range ids {
			if d := (doneTo{id, a.move()}); took != never {
				calls[d] = append(calls[d], call{a, took == surely && len(ids) == 1})
			}
		}
	}
	return calls
}

// cancelledBefore reports whether one of the entries to which an action may refer was cancelled before the answer to
// the action.
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

// The method does reports whether a call may have made a step. For this, the step must lie within the time of the call.
// It must start from the state that the call reported, and make the entry due as requested.
func (l *Ledger) does(a call, s *step) bool {
	answered := a.answered != 0 && a.err == ""
	inTime := s.wall+jump >= a.At && (!answered || s.wall <= a.answered+jump)
	if answered && ends(s.move) && a.dead != (s.old.state == dead) {
		return false
	}
	return (inTime || !l.compares(s, a.At)) && (!delays(s.move) || s.dueIn([]delay{exactly(a.DelayMS)}))
}

// ends reports whether a move belongs to an action with which a service ends an entry.
func ends(move string) bool { return move == moveComplete || move == moveCancel }

// delays reports whether a move makes its entry due at a time that the caller chose.
func delays(move string) bool {
	return move == moveReschedule || move == moveRequeue || move == moveRequeueUndo
}

func places(calls []call) (found []Place) {
	for _, a := range calls {
		found = append(found, a.place)
	}
	return found
}
