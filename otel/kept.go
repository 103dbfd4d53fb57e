package otel

import "sync"

// names keeps the first maxNames different names. Telemetry reports every further name as "_OTHER".
type names struct {
	maxNames int

	mu    sync.RWMutex // guards known
	known map[string]bool
}

func newNames(maxNames int) *names { return &names{maxNames: maxNames, known: make(map[string]bool)} }

// canonical returns the text under which Telemetry reports a name. If n has the name, or has space to add the name,
// this text is the name. Otherwise the text is "_OTHER". The result isNew is true if this call has added the name.
func (n *names) canonical(name string) (value string, isNew bool) {
	n.mu.RLock()
	isKnown, isFull := n.known[name], len(n.known) >= n.maxNames
	n.mu.RUnlock()
	switch {
	case isKnown:
		return name, false
	case isFull:
		return other, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.known[name]:
		return name, false
	case len(n.known) >= n.maxNames:
		return other, false
	}
	n.known[name] = true
	return name, true
}

// cache has as many keys as its callers allow.
type cache[K comparable, V any] struct {
	mu     sync.RWMutex // guards values
	values map[K]V
}

func (k *cache[K, V]) valueFor(key K, mk func(K) V) V {
	k.mu.RLock()
	v, isFound := k.values[key]
	k.mu.RUnlock()
	if isFound {
		return v
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if v, isFound = k.values[key]; isFound {
		return v
	}
	if k.values == nil {
		k.values = make(map[K]V)
	}
	v = mk(key)
	k.values[key] = v
	return v
}
