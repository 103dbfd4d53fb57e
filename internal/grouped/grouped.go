// Package grouped groups items by a key.
package grouped

import (
	"iter"
	"slices"
)

// Groups holds the groups and the order in which their keys first occurred.
type Groups[K comparable, V any] struct {
	Order  []K
	Groups map[K][]V
}

// By returns groups of items that have the same key. The parameter key is a function that returns the key of an item.
func By[K comparable, V any](items []V, key func(V) K) Groups[K, V] {
	g := Groups[K, V]{Groups: make(map[K][]V)}
	for _, item := range items {
		k := key(item)
		if _, seen := g.Groups[k]; !seen {
			g.Order = append(g.Order, k)
		}
		g.Groups[k] = append(g.Groups[k], item)
	}
	return g
}

// Each yields each key with its group, in the order in which the keys first occurred.
func Each[K comparable, V any](items []V, key func(V) K) iter.Seq2[K, []V] {
	return func(yield func(K, []V) bool) {
		if len(items) == 0 {
			return
		}
		if first := key(items[0]); !slices.ContainsFunc(items[1:], func(item V) bool { return key(item) != first }) {
			yield(first, slices.Clip(items))
			return
		}
		g := By(items, key)
		for _, k := range g.Order {
			if !yield(k, g.Groups[k]) {
				return
			}
		}
	}
}

// Without returns a slice with the elements of items that the slice named drop does not contain. If the slice drop is
// empty, Without returns items itself.
func Without[T comparable](items, drop []T) []T {
	if len(drop) == 0 {
		return items
	}
	dropped := make(map[T]bool, len(drop))
	for _, item := range drop {
		dropped[item] = true
	}
	return slices.DeleteFunc(slices.Clone(items), func(item T) bool { return dropped[item] })
}
