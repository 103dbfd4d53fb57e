package verdict

import (
	"fmt"
	"slices"
)

type Verdict struct {
	Checks  []*Check
	Vacuous []string // demands that the run did not meet; if there are any, the verdict does not count
	Excused []string // demands that the run did not meet and was excused from
}

func (v *Verdict) Violated() bool {
	return slices.ContainsFunc(v.Checks, func(c *Check) bool { return c.Violations > 0 })
}

type Check struct {
	Name       string
	Rule       string
	Looked     int
	Violations int
	Findings   []Finding
	Notes      []string

	whenAny bool // whether a run counts even if this check found nothing to look at
}

type Finding struct {
	What  string
	Entry uint64
	Lines []Place
}

const findings = 5

func (c *Check) violate(e *Entry, lines []Place, format string, args ...any) {
	c.Violations++
	if len(c.Findings) == findings {
		return
	}
	f := Finding{What: fmt.Sprintf(format, args...)}
	for _, p := range lines {
		if !slices.Contains(f.Lines, p) {
			f.Lines = append(f.Lines, p)
		}
	}
	if e != nil {
		f.Entry = e.ID
		f.What = fmt.Sprintf("entry %d (%s, %q): %s", e.ID, e.Type, e.Key, f.What)
	}
	c.Findings = append(c.Findings, f)
}

func (c *Check) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

func Judge(l *Ledger) *Verdict {
	v := &Verdict{}
	for _, check := range []struct {
		name, rule string
		run        func(*Ledger, *Check)
		whenAny    bool
	}{
		{"lost", "every committed entry is in the table and comes to an end", checkLost, false},
		{"phantom", "an entry that was not committed is not in the table and never ran", checkPhantom, false},
		{"resolve", "Resolve answers correctly whether an unknown commit happened", checkResolve, false},
		{"linear history", "every change of a row fits the contract and starts from the result of the change before", checkLinear, false},
		{"attempts", "every attempt saw the row as its claim left it", checkAttempts, false},
		{"content", "every attempt received the recorded content", checkContent, false},
		{"outcome", "every outcome comes from an attempt that held the claim", checkOutcomes, false},
		{"lost success", "a success reported in time is recorded", checkLostSuccess, false},
		{"effects", "a recorded success has exactly one transactional effect, and no other effect exists", checkEffects, false},
		{"results", "an entry has a result exactly if its handler's success is stored, and a wait returns what was stored", checkResults, false},
		{"compensation", "an entry is compensated only after a recorded failure, and never after its success", checkCompensation, false},
		{"early", "no entry is claimed before it is due or while it is leased", checkEarly, false},
		{"due", "an entry is due at the requested time", checkDue, false},
		{"late", "a due entry starts in time when no fault delays it", checkLate, true},
		{"executions", "a claim runs once, and every lost lease has a reason", checkExecutions, false},
		{"actions", "every action of a person or a service is in the audit, and no other action is", checkActions, false},
		{"producers", "no producer deadlocks with the library's own statements", checkProducers, false},
		{"purge", "only old rows in a terminal state are deleted", checkPurge, true},
		{"unknown types", "entries of a type without a handler are left alone", checkUnknownTypes, false},
		{"audit", "the final table equals the last images of the audit", checkAudit, false},
		{"queue", "the queue at rest holds every open entry within its horizon", checkQueue, false},
	} {
		c := &Check{Name: check.name, Rule: check.rule, whenAny: check.whenAny}
		check.run(l, c)
		v.Checks = append(v.Checks, c)
	}
	v.judgeVacuity(l)
	return v
}
