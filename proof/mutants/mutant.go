package main

import "strings"

// mutant is a known bug of the library: how to put it in, what harm it does, and who is to see that.
type mutant struct {
	name   string
	what   string // the bug, in a line
	oracle oracle
	edits  []edit

	// sees is what goes red, layer by layer; a layer that is not named is blind to the bug. survives is what
	// stays green all the same: it is how a bug that the protocol makes harmless is told from a dangerous one.
	sees, survives selection
}

// edit replaces text in a file of the module. A text that does not stand there exactly once is an error: the
// code has moved on, and the mutant has to follow it.
type edit struct {
	file     string // from the module's root
	old, new string
}

// oracle is the kind of promise that a mutant breaks.
type oracle string

const (
	safety     oracle = "safety"            // an outcome, an effect or a row is wrong
	duplicates oracle = "duplicates"        // a handler runs more often than it has to
	lateness   oracle = "lateness"          // an entry runs, but late, or only when something else helps
	producers  oracle = "harm to producers" // a transaction of the user's waits or fails because of ours
	leak       oracle = "leak"              // slots, memory or connections are not given back
)

// selection says, by layer, which of its tests are meant; see layer for what the text stands for.
type selection map[layer]string

// tests names tests of the unit layer.
func tests(names ...string) selection { return selection{unit: strings.Join(names, "|")} }

// relayTests names tests of the layer relay.
func relayTests(names ...string) selection { return selection{relay: strings.Join(names, "|")} }

// telemetryTests names tests of the layer telemetry.
func telemetryTests(names ...string) selection {
	return selection{telemetry: strings.Join(names, "|")}
}

// pageTests names tests of the layer pages.
func pageTests(names ...string) selection { return selection{pages: strings.Join(names, "|")} }

// commandTests names tests of the layer command.
func commandTests(names ...string) selection { return selection{command: strings.Join(names, "|")} }

// sqliteTests names tests of the layer sqlite.
func sqliteTests(names ...string) selection { return selection{sqlite: strings.Join(names, "|")} }

// routerTests names tests of the layer router.
func routerTests(names ...string) selection { return selection{router: strings.Join(names, "|")} }

// scheduleTests names tests of the layer schedules.
func scheduleTests(names ...string) selection { return selection{schedules: strings.Join(names, "|")} }

// and adds another layer's part.
func (s selection) and(l layer, what string) selection {
	s[l] = what
	return s
}
