package compensator

import "slices"

// grouped keeps the order in which groups were first seen.
type grouped[K comparable, V any] struct {
	order  []K
	groups map[K][]V
}

// groupBy makes a group of each key's items. Where there is one key only, which is the rule, its group is items.
func groupBy[K comparable, V any](items []V, key func(V) K) grouped[K, V] {
	g := grouped[K, V]{groups: make(map[K][]V)}
	if len(items) == 0 {
		return g
	}
	if first := key(items[0]); !slices.ContainsFunc(items[1:], func(item V) bool { return key(item) != first }) {
		g.order, g.groups[first] = []K{first}, slices.Clip(items)
		return g
	}
	for _, item := range items {
		k := key(item)
		if _, seen := g.groups[k]; !seen {
			g.order = append(g.order, k)
		}
		g.groups[k] = append(g.groups[k], item)
	}
	return g
}
