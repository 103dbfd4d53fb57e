package main

import "slices"

// catalogue is every known bug, in the order of an entry's life. Most were made by somebody, here or elsewhere.
func catalogue() []mutant {
	return slices.Concat(recording(), announcing(), claiming(), running(), settling(), compensating(), managing(), telling(), reconciling(),
		recurring(), relaying(), consuming(), takingIn(), operating(), commanding())
}
