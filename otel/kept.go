package otel

import "sync"

// names limits the values of an attribute. The first names up to the limit are kept, and later names are reported as
// other.
type names struct {
	most int

	mu    sync.RWMutex // guards known
	known map[string]bool
}

func newNames(most int) *names { return &names{most: most, known: make(map[string]bool)} }

// The method of returns the argument name if it is among the first names, and the constant other if it is not. The
// result fresh says whether this call has added the name.
func (n *names) of(name string) (value string, fresh bool) {
	n.mu.RLock()
	known, full := n.known[name], len(n.known) >= n.most
	n.mu.RUnlock()
	switch {
	case known:
		return name, false
	case full:
		return other, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.known[name]:
		return name, false
	case len(n.known) >= n.most:
		return other, false
	}
	n.known[name] = true
	return name, true
}

// kept caches one value for each key. Its callers limit the number of keys.
type kept[K comparable, V any] struct {
	mu   sync.RWMutex // guards made
	made map[K]V
}

func (k *kept[K, V]) of(key K, mk func(K) V) V {
	k.mu.RLock()
	v, found := k.made[key]
	k.mu.RUnlock()
	if found {
		return v
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if v, found = k.made[key]; found {
		return v
	}
	if k.made == nil {
		k.made = make(map[K]V)
	}
	v = mk(key)
	k.made[key] = v
	return v
}
