package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// layer is a kind of test that can find a mutant.
type layer string

const (
	unit       layer = "unit"       // tests of any module, most on real servers; selection: names joined by |
	simulation layer = "simulation" // the deterministic simulation; selection: number of seeds
	crash      layer = "crash"      // the crash matrix, ten kills for each case; selection: cases joined by |
	chaos      layer = "chaos"      // the chaos harness; selection: duration
)

// layers lists the layers in the order in which they run, the fastest first.
var layers = []layer{unit, simulation, crash, chaos}

// command is one call of the go command.
type command struct {
	dir  string // directory relative to the root
	args []string
}

// commands returns one call of go test for each module that has tests of the selection.
func (l layer) commands(t *tree, what string) ([]command, error) {
	switch l {
	case unit:
		return t.testCommands(what)
	case simulation:
		return t.testOf("TestSeeds", "-timeout=10m", "-run=^TestSeeds$", "-seeds="+what)
	case crash:
		const matrix = "TestProcessKilledAtAnyPointLosesNothingAndRepeatsNothing"
		return t.testOf(matrix, "-timeout=15m", "-tags=failpoints", "-run=^"+matrix+"$/^("+what+")$", "-kills=10")
	case chaos:
		return t.testOf("TestChaos", "-timeout=30m", "-run=^TestChaos$", "-chaos.seed=1", "-chaos.duration="+what)
	}
	panic("no command for layer " + l)
}

// anchored returns the pattern that matches the named tests and subtests, and no others.
func anchored(names string) string {
	patterns := strings.Split(names, "|")
	for i, name := range patterns {
		patterns[i] = "^" + strings.ReplaceAll(name, "/", "$/^") + "$"
	}
	return strings.Join(patterns, "|")
}

// names returns the tests of a selection that must all fail. If one failed test is enough for this layer, names returns
// nil.
func (l layer) names(what string) []string {
	if l != unit {
		return nil
	}
	return strings.Split(what, "|")
}

// settings returns the edits that every run of the layer gets, with or without a mutant. They shorten how long tests
// wait for an event. Tests on real servers wait for minutes, so that they do not fail on a slow machine. But with a
// mutant, the event often never comes.
func (l layer) settings() []edit {
	if l != unit {
		return nil
	}
	return []edit{
		{"harness.Timeout", "3 * time.Minute", "20 * time.Second"},
		{"testTimeout", "4 * time.Minute", "40 * time.Second"},
	}
}

// union returns one selection that includes all the given selections.
func (l layer) union(all []string) string {
	switch l {
	case unit, crash:
		all = strings.Split(strings.Join(all, "|"), "|")
		slices.Sort(all)
		return strings.Join(slices.Compact(all), "|")
	}
	return slices.MaxFunc(all, func(a, b string) int { return cmp.Compare(l.length(a), l.length(b)) })
}

// length returns the length of a run: the number of seeds of the simulation, or the duration of the chaos run. union
// needs it to find the longest run.
func (l layer) length(what string) int64 {
	if l == simulation {
		seeds, err := strconv.ParseInt(what, 10, 64)
		if err != nil {
			panic(err)
		}
		return seeds
	}
	lasts, err := time.ParseDuration(what)
	if err != nil {
		panic(err)
	}
	return int64(lasts)
}
