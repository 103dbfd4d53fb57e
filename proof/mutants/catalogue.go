package main

import "slices"

// catalogue returns the known bugs, in groups of promises. Each bug breaks a promise. A bug that the same tests find
// for the same reason is not listed twice.
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
