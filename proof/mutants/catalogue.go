package main

import "slices"

// catalogue returns the known bugs, by groups of promises. Each is here for a promise; a bug that the same tests see
// for the same reason is not kept beside it.
func catalogue() []mutant {
	return slices.Concat(
		recording(),
		ending(),
		claiming(),
		ordering(),
		surviving(),
		exchanging(),
		operating(),
	)
}
