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

var layers = []layer{unit, simulation, crash, chaos}

type command struct {
	dir  string // directory relative to the root
	args []string
}

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

func anchored(names string) string {
	patterns := strings.Split(names, "|")
	for i, name := range patterns {
		patterns[i] = "^" + strings.ReplaceAll(name, "/", "$/^") + "$"
	}
	return strings.Join(patterns, "|")
}

func (l layer) names(what string) []string {
	if l != unit {
		return nil
	}
	return strings.Split(what, "|")
}

// Tests wait only a short time for an event, because with a mutant the event often never comes.
func (l layer) settings() []edit {
	if l != unit {
		return nil
	}
	return []edit{
		{"harness.Timeout", "3 * time.Minute", "20 * time.Second"},
		{"testTimeout", "4 * time.Minute", "40 * time.Second"},
	}
}

func (l layer) union(all []string) string {
	switch l {
	case unit, crash:
		all = strings.Split(strings.Join(all, "|"), "|")
		slices.Sort(all)
		return strings.Join(slices.Compact(all), "|")
	}
	return slices.MaxFunc(all, func(a, b string) int { return cmp.Compare(l.length(a), l.length(b)) })
}

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
