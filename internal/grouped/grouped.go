// Package grouped sorts what comes together by what it has in common. A leaf: it knows nothing else.
package grouped

import "slices"

// Groups keeps the order in which groups were first seen.
type Groups[K comparable, V any] struct {
	Order  []K
	Groups map[K][]V
}

// By makes a group of each key's items. Where there is one key only, which is the rule, its group is items.
func By[K comparable, V any](items []V, key func(V) K) Groups[K, V] {
	g := Groups[K, V]{Groups: make(map[K][]V)}
	if len(items) == 0 {
		return g
	}
	if first := key(items[0]); !slices.ContainsFunc(items[1:], func(item V) bool { return key(item) != first }) {
		g.Order, g.Groups[first] = []K{first}, slices.Clip(items)
		return g
	}
	for _, item := range items {
		k := key(item)
		if _, seen := g.Groups[k]; !seen {
			g.Order = append(g.Order, k)
		}
		g.Groups[k] = append(g.Groups[k], item)
	}
	return g
}
