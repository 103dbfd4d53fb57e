package main

import "slices"

// catalogue returns all mutants, in groups. Each breaks a promise. If the same tests find two bugs for the same reason,
// only one of them is listed.
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
