package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// layer is a kind of test that can see a mutant.
type layer string

const (
	unit       layer = "unit"       // tests of the module, most on real servers; its selection: names joined by |
	relay      layer = "relay"      // tests of the module relay/rabbitmq, on a real broker; its selection: as of unit
	router     layer = "router"     // tests of the module relay/watermill; its selection: as of unit
	telemetry  layer = "telemetry"  // tests of the module otel, which are internal/oteltest's; its selection: as of unit
	pages      layer = "pages"      // tests of the module internal/uitest, some in a browser; its selection: as of unit
	command    layer = "command"    // tests of the module cmd/compensator; its selection: as of unit
	sqlite     layer = "sqlite"     // tests of the module internal/sqlitetest, on SQLite; its selection: as of unit
	schedules  layer = "schedules"  // tests of the module cron; its selection: as of unit
	simulation layer = "simulation" // seeds of the deterministic simulation; how many
	crash      layer = "crash"      // cases of the crash matrix, joined by |, in which a process is killed ten times
	chaos      layer = "chaos"      // the chaos harness; how long, as a duration
	model      layer = "model"      // the protocol's model; the switch that breaks it the same way. Not run from here: see proof/model
)

// layers are those that are run, cheapest first.
var layers = []layer{unit, sqlite, schedules, telemetry, relay, router, pages, command, simulation, crash, chaos}

// hasTests reports whether the layer's selections are names of tests.
func (l layer) hasTests() bool {
	return slices.Contains([]layer{unit, sqlite, schedules, telemetry, relay, router, pages, command}, l)
}

// dir is where the layer's command runs, from the module's root.
func (l layer) dir() string {
	switch l { // modules of their own, with this one in them
	case relay:
		return "relay/rabbitmq"
	case router:
		return "relay/watermill"
	case telemetry:
		return "internal/oteltest"
	case pages:
		return "internal/uitest"
	case command:
		return "cmd/compensator"
	case sqlite:
		return "internal/sqlitetest"
	case schedules:
		return "cron"
	case chaos:
		return "proof/chaos"
	}
	return "."
}

// args are those of `go test` for a selection.
func (l layer) args(what string) []string {
	switch l {
	case unit:
		return append([]string{"-timeout=10m", "-run=" + anchored(what)}, packagesOf(what)...)
	case sqlite, schedules, telemetry, relay, router, pages, command:
		return []string{"-timeout=10m", "-run=" + anchored(what), "."}
	case simulation:
		return []string{"-timeout=10m", "-run=^TestSeeds$", "./proof/sim", "-seeds=" + what}
	case crash:
		return []string{"-timeout=15m", "-tags=failpoints", "-run=^TestProcessKilledAtAnyPointLosesNothingAndRepeatsNothing$/^(" + what + ")$", "./proof/crashmatrix", "-kills=10"}
	case chaos:
		return []string{"-timeout=30m", "-run=^TestChaos$", ".", "-chaos.seed=1", "-chaos.duration=" + what}
	}
	panic("no command for layer " + l)
}

// anchored is the pattern that matches the named tests and subtests, and no others.
func anchored(names string) string {
	patterns := strings.Split(names, "|")
	for i, name := range patterns {
		patterns[i] = "^" + strings.ReplaceAll(name, "/", "$/^") + "$"
	}
	return strings.Join(patterns, "|")
}

// names are the tests of a selection each of which has to go red; none where any will do.
func (l layer) names(what string) []string {
	if !l.hasTests() {
		return nil
	}
	return strings.Split(what, "|")
}

// settings are edits every run of the layer gets, broken or not. A mutant often shows as something that never
// happens, and the tests on real servers wait minutes for it, because they must not fail on a slow machine.
func (l layer) settings() []edit {
	patience := edit{"internal/harness/world.go", "const Patience = 3 * time.Minute", "const Patience = 20 * time.Second"}
	switch l {
	case unit, sqlite, telemetry, command, router:
		return []edit{patience}
	case relay:
		return []edit{patience, {"relay/rabbitmq/broker_test.go", "const testPatience = 4 * time.Minute", "const testPatience = 40 * time.Second"}}
	}
	return nil
}

// union is one selection that stands for all the given ones.
func (l layer) union(all []string) string {
	slices.Sort(all)
	all = slices.Compact(all)
	switch {
	case l.hasTests():
		all = strings.Split(strings.Join(all, "|"), "|")
		slices.Sort(all)
		return strings.Join(slices.Compact(all), "|")
	case l == crash:
		return strings.Join(all, "|")
	}
	return slices.MaxFunc(all, func(a, b string) int { return cmp.Compare(l.length(a), l.length(b)) })
}

// length is how long a run of a selection is beside others of its layer: the simulation's in seeds, the chaos harness's in time.
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
