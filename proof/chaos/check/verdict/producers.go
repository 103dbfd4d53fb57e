package verdict

import (
	"fmt"
	"slices"
	"strings"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

// checkProducers reports lock waits of producers but does not judge them, because the server does not say which
// transaction held the lock. The holder may be another producer that uses the same key.
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
	c.note("inserts that failed: %d in a lock wait (%d of them while no fault affected locks or the database), %d in a deadlock", waits, outside, deadlocks)
}

const (
	roleNemesis  = "nemesis"
	roleLibrary  = "library"
	roleProducer = "producer"
	roleOther    = "other"
)

// role says who sent a statement. The result is roleOther for a change that a service makes in its own transaction, for
// example by CancelTx. The service decides how long this transaction locks rows.
func role(statement string) string {
	s := strings.Join(strings.Fields(strings.ToUpper(statement)), " ")
	engine := strings.Contains(s, "VERSION=VERSION+1") || strings.Contains(s, "SET LEASE_UNTIL=") || strings.Contains(s, "SKIP LOCKED")
	switch {
	case strings.Contains(s, strings.ToUpper(history.NemesisComment)):
		return roleNemesis
	case engine, strings.Contains(s, "DELETE ") && strings.Contains(s, "STATE+0="):
		return roleLibrary
	case strings.HasPrefix(s, "INSERT INTO") && strings.Contains(s, "IDEMPOTENT_ID"), strings.Contains(s, "/* PRODUCER */"):
		return roleProducer
	}
	return roleOther
}

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

func plural(n int, what string) string {
	if n == 1 {
		return what
	}
	return fmt.Sprintf("%s (%d times)", what, n)
}
