package verdict

import (
	"fmt"
	"slices"
)

// Verdict is what the checks made of a run.
type Verdict struct {
	Checks  []*Check
	Vacuous []string // what the run did not show; an empty list makes the verdict worth something
	Excused []string // what it did not show and was not asked to
}

// Violated reports whether any check found a violation.
func (v *Verdict) Violated() bool {
	return slices.ContainsFunc(v.Checks, func(c *Check) bool { return c.Violations > 0 })
}

// Check is one check and what it found.
type Check struct {
	Name       string
	Rule       string    // what must hold
	Looked     int       // how many cases it looked at
	Violations int       // of them, how many broke the rule
	Findings   []Finding // the first violations
	Notes      []string  // what is told and not judged

	whenAny bool // a run may hold no case of it: a short one purges nothing, and one on a busy machine is never calm
}

// Finding is one violation.
type Finding struct {
	What  string
	Entry uint64  // 0: of no entry in particular
	Lines []Place // that prove it
}

// findings is how many violations a check keeps to show.
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

// Judge runs every check.
func Judge(l *Ledger) *Verdict {
	v := &Verdict{}
	for _, check := range []struct {
		name, rule string
		run        func(*Ledger, *Check)
		whenAny    bool
	}{
		{"lost", "what was committed is in the table, and has come to its end", checkLost, false},
		{"phantom", "what was not committed is not in the table and never ran", checkPhantom, false},
		{"resolve", "what Resolve answers about an unknown commit is what happened", checkResolve, false},
		{"linear history", "every change of a row is a line of the contract, from what the change before left", checkLinear, false},
		{"attempts", "every attempt saw the row as its claim left it", checkAttempts, false},
		{"content", "every attempt was given what the producer recorded", checkContent, false},
		{"outcome", "every outcome is that of an attempt which held the claim", checkOutcomes, false},
		{"lost success", "a success reported in time is recorded", checkLostSuccess, false},
		{"effects", "a transactional effect is there once if its success is, else not at all", checkEffects, false},
		{"compensation", "an entry is compensated after its failure is recorded, never after its success", checkCompensation, false},
		{"early", "nothing is claimed before it is due, or while it is leased", checkEarly, false},
		{"due", "an entry is due when it was asked to be", checkDue, false},
		{"late", "what is due begins in good time while nothing is in its way", checkLate, true},
		{"executions", "a claim runs once, and a lease is lost for a reason", checkExecutions, false},
		{"actions", "what a person or a service did is there, and nothing else is", checkActions, false},
		{"producers", "no producer is harmed by a lock of the library's", checkProducers, false},
		{"purge", "only old rows in a terminal state go", checkPurge, true},
		{"unknown types", "entries of a type that nobody serves are left alone", checkUnknownTypes, false},
		{"audit", "the table ends as the audit says", checkAudit, false},
		{"queue", "the queue at rest knows every open entry within its horizon", checkQueue, false},
	} {
		c := &Check{Name: check.name, Rule: check.rule, whenAny: check.whenAny}
		check.run(l, c)
		v.Checks = append(v.Checks, c)
	}
	v.judgeVacuity(l)
	return v
}
