package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// Type is a business type that runs in this process. The root package has filled in all defaults.
type Type struct {
	Name                  string
	MaxAttempts           int
	MaxCompensateAttempts int
	Timeout               time.Duration
	Lease                 time.Duration
	Concurrency           int           // maximum number of handler calls at once, however many entries each takes
	MaxWait               time.Duration // age of an entry from which its handler's waits count as failures; 0: they never count
	CompensateCrashed     bool
	Retry                 func(failures int) time.Duration

	// Exactly one of these two is set. A feature sets RunAttempt to call the handler itself. If the handler has a result,
	// it sets Row.Result before it returns nil.
	Run        func(ctx context.Context, row *processlog.Row) error
	RunAttempt func(a *Attempt) Result

	// Ready, if set, is called before Run, and before RunAttempt. If it returns an error, the
	// attempt ends with that error and no handler is called.
	Ready func(ctx context.Context, row *processlog.Row) error

	// At most one of these two is set.
	Undo        func(ctx context.Context, row *processlog.Row) error
	UndoAttempt func(a *Attempt) Result

	slots      Slots
	admissions []*Admission
	order      *Order   // nil: no entry waits for another
	claimer    Claimer  // nil: the store's Claim
	grouping   Grouping // nil: each entry has a call of its own
}

// SuspectAfter is how many leases in a row an entry must lose to be a suspect: it may have crashed a process.
const SuspectAfter = 1

func (t *Type) compensates() bool { return t.Undo != nil || t.UndoAttempt != nil }

func (t *Type) maxAttempts(row *processlog.Row) int {
	if row.MaxAttempts > 0 {
		return row.MaxAttempts
	}
	return t.MaxAttempts
}

// Attempt runs a handler once without an engine, and returns what would become of the row. The handler must not need a
// transaction of the library.
func (t *Type) Attempt(ctx context.Context, row *processlog.Row) (o processlog.Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
		o = t.safeOutcomeOf(row, err, context.Cause(ctx))
	}()
	return o, t.call(ctx, row)
}

// call runs the handler or the compensation if it needs no transaction. It returns a copy of the error: see package
// usererr.
func (t *Type) call(ctx context.Context, row *processlog.Row) error {
	if row.State == processlog.Compensating {
		return usererr.Of(t.Undo(ctx, row))
	}
	return usererr.Of(t.Run(ctx, row))
}

// types holds the business types of this process. They are added before Run. Entries may already be recorded at that
// time.
type types struct {
	accepts atomic.Bool // whether Run takes new entries

	mu     sync.RWMutex // guards the fields below
	byName map[string]*Type
	leases leaseRange
}

// leaseRange holds the shortest and the longest lease of the types.
type leaseRange struct{ shortest, longest time.Duration }

func newTypes(lease time.Duration) *types {
	return &types{byName: make(map[string]*Type), leases: leaseRange{lease, lease}}
}

// named returns a type, or nil if it is not registered.
func (ts *types) named(name string) *Type {
	ts.mu.RLock()
	defer ts.mu.RUnlock()
	return ts.byName[name]
}

// accepting returns a registered type while Run takes new entries, and nil otherwise.
func (ts *types) accepting(name string) *Type {
	if !ts.accepts.Load() {
		return nil
	}
	return ts.named(name)
}

func (ts *types) add(t *Type) error {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.byName[t.Name] != nil {
		return &processlog.FieldError{Field: "business type", Reason: fmt.Sprintf("%q is registered already", t.Name)}
	}
	ts.byName[t.Name] = t
	ts.leases.shortest = min(ts.leases.shortest, t.Lease)
	ts.leases.longest = max(ts.leases.longest, t.Lease)
	return nil
}

// names returns the names of the types, sorted.
func (ts *types) names() []string {
	ts.mu.RLock()
	defer ts.mu.RUnlock()
	return slices.Sorted(maps.Keys(ts.byName))
}

// runBegins notifies the admissions of all types that Run begins.
func (ts *types) runBegins() {
	ts.mu.RLock()
	defer ts.mu.RUnlock()
	for _, t := range ts.byName {
		for _, a := range t.admissions {
			a.RunBegins()
		}
	}
}

func (ts *types) leaseRange() leaseRange {
	ts.mu.RLock()
	defer ts.mu.RUnlock()
	return ts.leases
}

// peekEvery returns how often a scanner looks at the queue. It is at most the shortest lease, so that the scanner sees
// a leased entry before its lease ends. An entry enqueued behind one that is already due wakes no scanner.
func (ts *types) peekEvery() time.Duration { return min(peekInterval, ts.leaseRange().shortest) }

// renewInterval returns the time between two rounds of the renewer. It is short enough for the shortest lease. Most
// attempts end before they need a renewal, and then a round only reads memory.
func (ts *types) renewInterval() time.Duration { return min(ts.leaseRange().shortest/10, time.Second) }
