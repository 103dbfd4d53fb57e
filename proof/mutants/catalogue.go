package main

import "slices"

// catalogue is every known bug, in the order of an entry's life. Most were made by somebody, here or elsewhere.
func catalogue() []mutant {
	return slices.Concat(
		recording(), announcing(), claiming(), running(), breaking(), batching(),
		settling(), compensating(),
		managing(), operating(), showing(), commanding(), telling(),
		reconciling(),
		recurring(), takingTurns(), meeting(), observing(),
		relaying(), consuming(), routing(), takingIn(),
		adopting(),
	)
}
