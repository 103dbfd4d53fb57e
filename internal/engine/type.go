package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
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
	MaxWait               time.Duration // how old an entry may be when its handler asks to wait, for example with Snooze. If the entry is older, this request counts as a failure; 0: no limit
	CompensateCrashed     bool
	Retry                 func(failures int) time.Duration

	// Run calls the user's handler for an attempt. If the handler returns a result and no error, Run stores the result
	// in Row.Result. Undo is nil if the type has no compensation.
	Run, Undo Handler

	slots      Slots
	admissions []*Admission
	order      *Order   // blocks entries until others have ended; nil: no entry is blocked
	grouping   Grouping // lets entries share handler calls
}

// SuspectAfter is how many consecutive leases an entry must lose to be a suspect. A lease is lost if it ends without an
// outcome. A suspect may have crashed the processes that held its lost leases.
const SuspectAfter = 1

func (t *Type) compensates() bool { return t.Undo != nil }

// Handler calls code of the user for one attempt.
type Handler func(a *Attempt) Result

// HandlerOf returns the Handler that calls f.
func HandlerOf(f func(ctx context.Context, row *processlog.Row) error) Handler {
	return func(a *Attempt) Result { return Result{Err: usererr.Of(f(a.ctx, &a.Row))} }
}

// The struct types holds the registered types. It needs a mutex: while a type is still being registered before Run,
// other goroutines may already record entries.
type types struct {
	mu     sync.RWMutex // guards the fields below
	byName map[string]*Type
	leases leaseRange
}

type leaseRange struct{ shortest, longest time.Duration }

func newTypes(lease time.Duration) *types {
	return &types{byName: make(map[string]*Type), leases: leaseRange{lease, lease}}
}

// TypeNamed returns a registered type, or nil.
func (ts *types) TypeNamed(name string) *Type {
	ts.mu.RLock()
	defer ts.mu.RUnlock()
	return ts.byName[name]
}

func (ts *types) addType(t *Type) error {
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

// TypeNames returns the names of the registered types, sorted.
func (ts *types) TypeNames() (names []string) {
	for _, t := range ts.Types() {
		names = append(names, t.Name)
	}
	return names
}

// Types returns the registered types, sorted by name.
func (ts *types) Types() []*Type {
	ts.mu.RLock()
	defer ts.mu.RUnlock()
	return slices.SortedFunc(maps.Values(ts.byName), func(a, b *Type) int { return cmp.Compare(a.Name, b.Name) })
}

// LongestLease returns the longest lease of all types.
func (ts *types) LongestLease() time.Duration { return ts.leaseRange().longest }

func (ts *types) leaseRange() leaseRange {
	ts.mu.RLock()
	defer ts.mu.RUnlock()
	return ts.leases
}

// LookInterval returns the maximum time between two questions to a queue. Each question asks when the next entry of
// each type is due. An entry with a lease is due again when its lease ends, for example because its process has died.
// The interval is at most the shortest lease. So the scanner learns the end of each lease in advance, and can claim the
// entry in time.
func (ts *types) LookInterval() time.Duration { return min(peekInterval, ts.leaseRange().shortest) }

// renewInterval returns the time between two rounds of Engine.Renew: a tenth of the shortest lease, and at most a
// second. Such frequent rounds are cheap, because a round only reads memory unless a lease needs a renewal.
func (ts *types) renewInterval() time.Duration { return min(ts.leaseRange().shortest/10, time.Second) }
