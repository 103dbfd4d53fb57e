package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator/proof/chaos/check/verdict"
	"github.com/compensator-go/compensator/proof/chaos/history"
)

func page(l *verdict.Ledger, v *verdict.Verdict) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	begin, seconds := l.Timeline()
	say("# Chaos run, seed %d: %s\n", l.Run.Seed, v.Sum())
	say("%s, %d s from the first process to the last line.", time.UnixMicro(begin).UTC().Format("2006-01-02 15:04:05 MST"), len(seconds))
	for _, name := range slices.Sorted(maps.Keys(l.Run.Versions)) {
		say("%s %s.", name, l.Run.Versions[name])
	}
	say("\n![the course of the run](report.png)\n")
	sayCounts(say, l)
	sayChecks(say, v)
	sayLateness(say, l)
	sayFaults(say, l)
	sayList(say, "Demands not met", v.Vacuous)
	sayList(say, "Excused demands", v.Excused)
	return b.String()
}

func sayCounts(say func(string, ...any), l *verdict.Ledger) {
	c := l.Count()
	say("| | |\n|---|--:|")
	for _, line := range []struct {
		name string
		n    int
	}{
		{"entries", c.Entries}, {"commits answered", c.Commits}, {"commits with an unknown outcome", c.UnknownCommits},
		{"attempts", c.Attempts}, {"claims, including those of inserts", c.Claims}, {"leases lost", c.LostLeases},
		{"outcomes dropped, because the version had changed", c.Dropped}, {"faults", len(l.Faults)},
	} {
		say("| %s | %d |", line.name, line.n)
	}
	say("\nHow entries came to an end (a requeued entry counts more than once):\n\n| | |\n|---|--:|")
	for _, name := range slices.Sorted(maps.Keys(c.ByEnd)) {
		say("| %s | %d |", name, c.ByEnd[name])
	}
}

func sayChecks(say func(string, ...any), v *verdict.Verdict) {
	say("\n## Checks\n\n| check | what must hold | looked at | violations | |\n|---|---|--:|--:|---|")
	for _, c := range v.Checks {
		say("| %s | %s | %d | %d | %s |", c.Name, c.Rule, c.Looked, c.Violations, c.Word())
	}
	for _, c := range v.Checks {
		for _, f := range c.Findings {
			say("\n- **%s**: %s", c.Name, f.What)
		}
	}
	say("")
	for _, c := range v.Checks {
		for _, note := range c.Notes {
			say("- %s: %s", c.Name, note)
		}
	}
}

func sayLateness(say func(string, ...any), l *verdict.Ledger) {
	say("\n## Lateness\n\nFrom an entry's due time, or the answer to its commit when that came later, to the handler's first line.\n")
	say("| | starts | 50 %% | 90 %% | 99 %% | 99.9 %% | all within |\n|---|--:|--:|--:|--:|--:|--:|")
	starts := l.Starts()
	for _, regime := range []struct {
		name string
		of   func(verdict.Start) bool
	}{
		{"no fault felt", func(s verdict.Start) bool { return s.Calm }},
		{"during and right after faults", func(s verdict.Start) bool { return !s.Calm }},
	} {
		p := verdict.Sum(starts, regime.of)
		say("| %s | %d | %s | %s | %s | %s | %s |", regime.name, p.N, ms(p.P50), ms(p.P90), ms(p.P99), ms(p.P999), ms(p.Max))
	}
}

func ms(d time.Duration) string {
	if d >= 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

func sayFaults(say func(string, ...any), l *verdict.Ledger) {
	say("\n## Faults\n\n| kind | fired | refused | seconds in all |\n|---|--:|--:|--:|")
	type tally struct {
		fired, refused int
		lasted         int64
	}
	kinds := make(map[string]*tally)
	for _, kind := range l.Run.FaultKinds {
		kinds[kind] = &tally{}
	}
	for _, f := range l.Faults {
		k := kinds[f.Fault.Fault]
		if k == nil {
			k = &tally{}
			kinds[f.Fault.Fault] = k
		}
		if !f.Fired {
			k.refused++
			continue
		}
		k.fired++
		k.lasted += f.End - f.At
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[kind]
		say("| %s | %d | %d | %.1f |", kind, k.fired, k.refused, float64(k.lasted)/1e6)
	}
}

func sayList(say func(string, ...any), title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	say("\n## %s\n", title)
	for _, line := range lines {
		say("- %s", line)
	}
}

var marks = []string{history.MarkHealed, history.MarkStopped, history.MarkQuiescent, history.MarkGaveUp}
