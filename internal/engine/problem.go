package engine

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/report"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/observe"
)

// ProblemList keeps failures that have no caller to return them to. It logs a failure at once, and then at most once a
// minute for each cause. Health shows the failure until the same operation works again.
type ProblemList struct {
	log    *slog.Logger
	number func(error) uint16 // returns the server's number of an error, or 0
	closed func() bool

	some atomic.Bool // a problem is open; a success reads only this flag

	mu   sync.Mutex // guards the fields below
	open map[problemKey]*observe.Problem
	said map[cause]time.Time

	unread map[string]time.Time // by type: when content last could not be decoded
}

// contentForgotten is how long after the last undecodable content problemContent ends. A success of
// another entry of the type does not end it. A waiting entry is tried again within mostUnavailable.
const contentForgotten = 2*mostUnavailable + time.Minute

type problemKey struct{ what, businessType string }

// cause groups failures that are logged together at most once a minute. Failures with different error numbers have
// different causes.
type cause struct {
	what   string
	number uint16 // the server's error number; 0: the server did not answer
}

// ProblemReadBack is exported for features that read recorded entries back.
const ProblemReadBack = "new entries could not be read back"

// These texts say what fails. Each is the key of a Problem, and appears in the log.
const (
	problemDue     = "due entries could not be found in the database"
	problemClaim   = "entries could not be claimed"
	problemRelease = "leases could not be given back"
	problemRenew   = "leases could not be renewed"
	problemStore   = "outcomes could not be stored"
	problemRound   = "the log could not be searched for forgotten entries"
	problemContent = "contents cannot be decoded here: their entries wait for a version of the code that can"
	problemAttempt = "attempts end with nothing counted: something they need is not available"
	problemFaults  = "attempts fail, and count, for they have met the database's condition too often in a row"

	// The database refuses these changes for certain entries, which the error names: see refusals.
	problemRefusedOutcome = "the database refuses to store outcomes of entries"
	problemRefusedClaim   = "the database refuses to lease entries"
	ProblemRefusedBlock   = "the database refuses to put entries back until their turn comes"
	problemRefusedRelease = "the database refuses to take back leases of entries"
	problemRefusedRenewal = "the database refuses to renew leases of entries"
)

// Failed records an error of a statement of the library, and logs it.
func (t *ProblemList) Failed(what, businessType string, err error) {
	if t.closed() {
		return // Close has ended the statement.
	}
	err = usererr.Of(err) // The error comes from a driver, or from a user's Store or Queue.
	times, since := t.Record(what, businessType, err)
	t.Complain(what, err, "type", businessType, "times", times, "since", since)
}

// Record keeps an error for Health. It returns how many times the same operation has failed, and since when.
func (t *ProblemList) Record(what, businessType string, err error) (times int, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := problemKey{what, businessType}
	problem := t.open[key]
	if problem == nil {
		problem = &observe.Problem{What: what, BusinessType: businessType, Since: time.Now()}
		setIn(&t.open, key, problem)
		t.some.Store(true)
	}
	problem.Error = err.Error()
	problem.Times++
	return problem.Times, problem.Since
}

// Passed ends the problem of an operation that works again. It reads only one atomic flag while no problem is open.
func (t *ProblemList) Passed(what, businessType string) {
	if !t.some.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, problemKey{what, businessType})
	t.some.Store(len(t.open) > 0)
}

// Complain logs err, unless the same cause was logged within the last minute.
func (t *ProblemList) Complain(what string, err error, attrs ...any) {
	now := time.Now()
	t.mu.Lock()
	about := cause{what, t.number(err)}
	last, known := t.said[about]
	quiet := known && now.Sub(last) < report.Interval
	if !quiet {
		setIn(&t.said, about, now)
	}
	t.mu.Unlock()
	if !quiet {
		t.log.Warn("compensator: "+what, append([]any{slog.Any("err", err)}, attrs...)...)
	}
}

// list returns the problems for Health, the oldest first.
func (t *ProblemList) list() []observe.Problem {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []observe.Problem
	for businessType, last := range t.unread {
		if time.Since(last) > contentForgotten {
			delete(t.unread, businessType)
			delete(t.open, problemKey{problemContent, businessType})
			t.some.Store(len(t.open) > 0)
		}
	}
	for _, problem := range t.open {
		list = append(list, *problem)
	}
	slices.SortFunc(list, func(a, b observe.Problem) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.What, b.What)) })
	return list
}

// attempted records the error of an attempt. counts reports whether the attempt counts as a failure of its entry. If it
// does not, the reason would otherwise appear only in the entry itself.
func (t *ProblemList) attempted(businessType string, err error, counts bool) {
	v := judged(err)
	kind := v.kind
	switch {
	case v.undecodable:
		t.undecodable(businessType, err)
	case kind == serverFault && counts:
		t.Failed(problemFaults, businessType, err)
	case kind == serverFault, kind == serverDown, kind == unavailable && !counts:
		t.Failed(problemAttempt, businessType, err)
	default:
		t.Passed(problemAttempt, businessType)
		t.Passed(problemFaults, businessType)
	}
}

// undecodable records that this process cannot decode an entry's content.
func (t *ProblemList) undecodable(businessType string, err error) {
	t.Failed(problemContent, businessType, err)
	t.mu.Lock()
	defer t.mu.Unlock()
	setIn(&t.unread, businessType, time.Now())
}

// Any reports whether a problem is open. It reads only one atomic flag.
func (t *ProblemList) Any() bool { return t.some.Load() }
