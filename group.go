package compensator

// grouped keeps the order in which groups were first seen.
type grouped[K comparable, V any] struct {
	order  []K
	groups map[K][]V
}

func groupBy[K comparable, V any](items []V, key func(V) K) grouped[K, V] {
	g := grouped[K, V]{groups: make(map[K][]V)}
	for _, item := range items {
		k := key(item)
		if _, seen := g.groups[k]; !seen {
			g.order = append(g.order, k)
		}
		g.groups[k] = append(g.groups[k], item)
	}
	return g
}
