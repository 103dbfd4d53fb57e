// Package problems keeps failures that the library cannot return to a caller.
package problems

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/report"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/observe"
)

// List holds the open problems of a Compensator: operations of the library that failed and have not worked since. The
// methods of List are safe for concurrent use. List logs a failure at once. It logs further failures with the same
// cause at most once a minute. Health shows a problem until its operation works.
type List struct {
	log    *slog.Logger
	number func(error) uint16
	closed func() bool

	anyOpen atomic.Bool

	mu         sync.Mutex // guards the fields below
	open       map[key]*problem
	lastLogged map[cause]time.Time
}

// problem is an open problem. If the field endsAt is not zero, the problem ends by itself at that time.
type problem struct {
	observe.Problem
	endsAt time.Time
}

// New returns an empty List. The function number returns the number that the server gave to an error, or 0 if there is
// none. The function closed returns true after the Compensator was closed. From then on, List.Failed records nothing.
func New(log *slog.Logger, number func(error) uint16, closed func() bool) *List {
	return &List{log: log, number: number, closed: closed, open: make(map[key]*problem), lastLogged: make(map[cause]time.Time)}
}

type key struct{ what, businessType string }

// cause is the cause of failures. Failures of one operation have the same cause if their error numbers are equal.
type cause struct {
	what   string
	number uint16
}

// Failed records an error of a statement of the library, and logs it.
func (t *List) Failed(what, businessType string, err error) {
	if t.closed() {
		return
	}
	err = usererr.Of(err) // The error comes from a driver, or from a user's Store or Queue.
	times, since := t.Record(what, businessType, err)
	t.LogLimited(what, err, "type", businessType, "times", times, "since", since)
}

// NoteResult records the result of a statement that the library has sent. A nil error means that the statement has
// worked.
func (t *List) NoteResult(what, businessType string, err error) {
	if err != nil {
		t.Failed(what, businessType, err)
		return
	}
	t.Passed(what, businessType)
}

// Reported implements report.Receiver. A report with the text report.Session is about one database session, and the
// pool closes this session. So Reported logs such a report, but does not show it in Health.
func (t *List) Reported(what string, err error) {
	if what == report.Session {
		t.LogLimited(what, err)
		return
	}
	t.NoteResult(what, "", err)
}

// Record keeps an error for Health. It returns how many times the same operation has failed, and since when.
func (t *List) Record(what, businessType string, err error) (times int, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := key{what, businessType}
	p := t.open[k]
	if p == nil {
		p = &problem{Problem: observe.Problem{What: what, BusinessType: businessType, Since: time.Now()}}
		t.open[k] = p
		t.anyOpen.Store(true)
	}
	p.Error = err.Error()
	p.Times++
	return p.Times, p.Since
}

// Passed ends the problem of an operation that works again. While no problem is open, Passed reads only one atomic
// flag.
func (t *List) Passed(what, businessType string) {
	if !t.anyOpen.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, key{what, businessType})
	t.anyOpen.Store(len(t.open) > 0)
}

// LogLimited logs the error err, unless an error of the same cause was logged less than report.Interval ago.
func (t *List) LogLimited(what string, err error, attrs ...any) {
	now, c := time.Now(), cause{what, t.number(err)} // number may call methods of err, which are user code, so it runs without the lock.
	t.mu.Lock()
	last, known := t.lastLogged[c]
	loggedRecently := known && now.Sub(last) < report.Interval
	if !loggedRecently {
		t.lastLogged[c] = now
	}
	t.mu.Unlock()
	if !loggedRecently {
		t.log.Warn("compensator: "+what, append([]any{slog.Any("err", err)}, attrs...)...)
	}
}

// FailedFor records the error err and logs it, as Failed does. Use FailedFor for an operation whose success nobody
// reports. The problem ends when the duration d has passed without another call of FailedFor for the operation and
// type.
func (t *List) FailedFor(d time.Duration, what, businessType string, err error) {
	t.Failed(what, businessType, err)
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.open[key{what, businessType}]; p != nil {
		p.endsAt = time.Now().Add(d)
	}
}

// Open returns the open problems, the oldest first.
func (t *List) Open() []observe.Problem {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.open, func(_ key, p *problem) bool { return !p.endsAt.IsZero() && time.Now().After(p.endsAt) })
	t.anyOpen.Store(len(t.open) > 0)
	var list []observe.Problem
	for _, p := range t.open {
		list = append(list, p.Problem)
	}
	slices.SortFunc(list, func(a, b observe.Problem) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.What, b.What)) })
	return list
}

// Any reports whether a problem is open. To find out, Any reads only one atomic flag.
func (t *List) Any() bool { return t.anyOpen.Load() }
