package verdict

import (
	"strings"

	"github.com/compensator-go/compensator/internal/chaos/history"
)

// doneTo is an action on an entry.
type doneTo struct {
	id     uint64
	action string
}

// checkActions: as many of a person's and a service's moves as certainly happened are there, and no more than may
// have.
func checkActions(l *Ledger, c *Check) {
	surelyDone, maybeDone, there := make(map[doneTo]int), make(map[doneTo]int), make(map[doneTo]int)
	lines := make(map[doneTo][]Place)
	rows := l.entriesByKey()
	for i := range l.actions {
		a := &l.actions[i]
		ids := []uint64{a.ID}
		if a.ID == 0 { // named by its key: any entry that had it
			ids = ids[:0]
			for _, e := range rows[a.Key] {
				ids = append(ids, e.ID)
			}
		}
		took := a.took()
		if took == surely && len(ids) == 0 {
			c.violate(nil, []Place{a.place}, "%s of %q was answered, and no such entry was ever there", a.Action.Action, a.Key)
		}
		for _, id := range ids {
			d := doneTo{id, a.Action.Action}
			lines[d] = append(lines[d], a.place)
			if took != never {
				maybeDone[d]++
			}
			if took == surely && len(ids) == 1 {
				surelyDone[d]++
			}
		}
		c.Looked++
	}
	l.each(func(e *Entry) {
		for i := range e.steps {
			s := &e.steps[i]
			action := actionOf[s.move]
			if action == "" {
				continue
			}
			d := doneTo{e.ID, action}
			lines[d] = append(lines[d], s.place)
			if there[d]++; there[d] > maybeDone[d] {
				c.violate(e, lines[d], "%s, %d times, and nobody may have done it more than %d times", action, there[d], maybeDone[d])
			}
		}
	})
	for d, n := range surelyDone {
		if there[d] < n {
			c.violate(l.Entries[d.id], lines[d], "%s was answered %d times, and is there %d times", d.action, n, there[d])
		}
	}
}

// checkProducers: no deadlock is between a producer's INSERT and a statement of the library's own. Lock waits of
// producers are told, and where they came from.
func checkProducers(l *Ledger, c *Check) {
	for i := range l.Deadlocks {
		d := &l.Deadlocks[i]
		var roles []string
		for _, s := range d.Statements {
			roles = append(roles, role(s))
		}
		if contains(roles, roleProducer) && contains(roles, roleLibrary) {
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
	case strings.HasPrefix(s, "INSERT INTO") && strings.Contains(s, "IDEMPOTENT_ID"):
		return roleProducer
	}
	return roleOther
}

func contains(list []string, want string) bool {
	for _, s := range list {
		if s == want {
			return true
		}
	}
	return false
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
