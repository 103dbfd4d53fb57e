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

// types holds the business types of this process. They are added before Run, possibly while entries are being recorded
// already.
type types struct {
	accepts atomic.Bool // Run takes new entries

	mu     sync.RWMutex // guards the fields below
	byName map[string]*Type
	leases leaseRange
}

// leaseRange is the shortest and the longest lease among the types.
type leaseRange struct{ shortest, longest time.Duration }

func newTypes(lease time.Duration) *types {
	return &types{byName: make(map[string]*Type), leases: leaseRange{lease, lease}}
}

// named returns nil for a type nobody registered.
func (r *types) named(name string) *Type {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byName[name]
}

// accepting returns the type while Run takes new entries of it.
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

// names are sorted.
func (r *types) names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.byName))
}

// runBegins tells the admissions of all types.
func (r *types) runBegins() {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, t := range r.byName {
		t.runBegins()
	}
}

func (r *types) leaseRange() leaseRange {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.leases
}

// peekEvery lets no lease of the queue end of which a scanner has not heard. What is enqueued behind such a one wakes
// nobody: an earlier one is due already.
func (r *types) peekEvery() time.Duration { return min(peekInterval, r.leaseRange().shortest) }

// renewInterval is short enough for the shortest lease. Most attempts end before they need a renewal; then
// a round costs a look at memory.
func (r *types) renewInterval() time.Duration { return min(r.leaseRange().shortest/10, time.Second) }
