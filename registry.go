package compensator

import (
	"fmt"
	"sync"
	"time"
)

// registry holds the business types of this process. Types are added before Run, possibly while entries are
// being recorded already.
type registry struct {
	mu     sync.RWMutex // guards the fields below
	byName map[string]*handlerType
	leases leaseRange

	strict  map[string]bool // types, also declared ones, that refuse other content under an idempotent id
	blurred map[string]bool // types of which other content was seen
}

// leaseRange is the shortest and the longest lease among the types.
type leaseRange struct{ shortest, longest time.Duration }

// named returns nil for a type nobody registered.
func (r *registry) named(name string) *handlerType {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byName[name]
}

func (r *registry) add(t *handlerType) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byName[t.name] != nil {
		return &FieldError{Field: "business type", Reason: fmt.Sprintf("%q is registered already", t.name)}
	}
	if r.byName == nil {
		r.byName = make(map[string]*handlerType)
	}
	r.byName[t.name] = t
	r.leases.shortest = min(r.leases.shortest, t.cfg.Lease)
	r.leases.longest = max(r.leases.longest, t.cfg.Lease)
	return nil
}

// refuseOtherContent notes a type's TypeConfig.RefuseOtherContent.
func (r *registry) refuseOtherContent(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.strict == nil {
		r.strict = make(map[string]bool)
	}
	r.strict[name] = true
}

func (r *registry) refusesOtherContent(name string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.strict[name]
}

// firstOtherContent is true once for each type.
func (r *registry) firstOtherContent(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.blurred[name] {
		return false
	}
	if r.blurred == nil {
		r.blurred = make(map[string]bool)
	}
	r.blurred[name] = true
	return true
}

func (r *registry) names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := make([]string, 0, len(r.byName))
	for name := range r.byName {
		names = append(names, name)
	}
	return names
}

func (r *registry) leaseRange() leaseRange {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.leases
}
