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

// ProblemList keeps what fails and nobody can be told: there is no caller. Each goes into the log at once, and then at
// most once a minute for each cause, and stands in Health until the same works again.
type ProblemList struct {
	log    *slog.Logger
	number func(error) uint16 // the server's, of an error
	closed func() bool

	some atomic.Bool // there is any: what works asks for no more than this

	mu   sync.Mutex // guards the fields below
	open map[problemKey]*observe.Problem
	said map[cause]time.Time

	unread map[string]time.Time // by type: when content last could not be decoded
}

// contentForgotten is how long after the last such failure problemContent ends. Another entry of the type that succeeds does not end
// it, and an entry that waits is tried again within mostUnavailable.
const contentForgotten = 2*mostUnavailable + time.Minute

type problemKey struct{ what, businessType string }

// cause is what is complained about once a minute: claims that fail for another reason than before are another.
type cause struct {
	what   string
	number uint16 // the server's; 0: no answer of a server
}

// ProblemReadBack is also the problem of features that read back what was recorded.
const ProblemReadBack = "new entries could not be read back"

// What fails. Each is the key of a Problem, and stands in the log.
const (
	problemDue              = "due entries could not be found in the database"
	problemClaim            = "entries could not be claimed"
	problemRelease          = "leases could not be given back"
	problemRenew            = "leases could not be renewed"
	problemStore            = "outcomes could not be stored"
	problemRollbackDetector = "what the database has kept so far could not be read back"
	problemRound            = "the log could not be searched for forgotten entries"
	problemContent          = "contents cannot be decoded here: their entries wait for a version of the code that can"
	problemAttempt          = "attempts end with nothing counted: something they need is not available"
	problemFaults           = "attempts fail, and count, for they have met the database's condition too often in a row"

	// What the database refuses for some entries, which it names; see refusals.
	problemRefusedOutcome = "the database refuses to store outcomes of entries"
	problemRefusedClaim   = "the database refuses to lease entries"
	ProblemRefusedBlock   = "the database refuses to put entries back until their turn comes"
	problemRefusedRelease = "the database refuses to take back leases of entries"
	problemRefusedRenewal = "the database refuses to renew leases of entries"
)

// Failed takes an error of a statement of ours, and logs it.
func (t *ProblemList) Failed(what, businessType string, err error) {
	if t.closed() {
		return // Close has ended it
	}
	err = usererr.Of(err) // of a driver, or of a Store or Queue of the user's
	times, since := t.Record(what, businessType, err)
	t.Complain(what, err, "type", businessType, "times", times, "since", since)
}

// Record keeps an error for Health. It returns how often the same has failed, and since when.
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

// Passed takes the news that something works. It costs a look at one word while there is no problem.
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

// list is for Health: the oldest first.
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

// attempted takes the end of an attempt, and whether it counts. One that does not would else say why in its entry alone.
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

// undecodable takes the end of an attempt whose content this process cannot decode.
func (t *ProblemList) undecodable(businessType string, err error) {
	t.Failed(problemContent, businessType, err)
	t.mu.Lock()
	defer t.mu.Unlock()
	setIn(&t.unread, businessType, time.Now())
}

// Any reports whether there is any problem. It costs a look at one word.
func (t *ProblemList) Any() bool { return t.some.Load() }
