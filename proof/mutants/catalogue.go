package main

import "slices"

// If two bugs fail the same tests for the same reason, only one of them is listed.
func catalogue() []mutant {
	return slices.Concat(
		recording(),
		ending(),
		claiming(),
		ordering(),
		surviving(),
		exchanging(),
		operating(),
		resulting(),
		limiting(),
	)
}
