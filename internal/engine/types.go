package engine

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

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
func (r *types) named(name string) *Type {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byName[name]
}

// accepting returns a registered type while Run takes new entries, and nil otherwise.
func (r *types) accepting(name string) *Type {
	if !r.accepts.Load() {
		return nil
	}
	if t := r.named(name); t != nil {
		return t
	}
	return nil
}

func (r *types) add(t *Type) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byName[t.Name] != nil {
		return &processlog.FieldError{Field: "business type", Reason: fmt.Sprintf("%q is registered already", t.Name)}
	}
	r.byName[t.Name] = t
	r.leases.shortest = min(r.leases.shortest, t.Lease)
	r.leases.longest = max(r.leases.longest, t.Lease)
	return nil
}

// names returns the names of the types, sorted.
func (r *types) names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.byName))
}

// runBegins notifies the admissions of all types that Run begins.
func (r *types) runBegins() {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, t := range r.byName {
		for _, a := range t.admissions {
			a.RunBegins()
		}
	}
}

func (r *types) leaseRange() leaseRange {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.leases
}

// peekEvery returns how often a scanner looks at the queue. It is at most the shortest lease, so that the scanner sees
// a leased entry before its lease ends. An entry enqueued behind one that is already due wakes no scanner.
func (r *types) peekEvery() time.Duration { return min(peekInterval, r.leaseRange().shortest) }

// renewInterval returns the time between two rounds of the renewer. It is short enough for the shortest lease. Most
// attempts end before they need a renewal, and then a round only reads memory.
func (r *types) renewInterval() time.Duration { return min(r.leaseRange().shortest/10, time.Second) }
