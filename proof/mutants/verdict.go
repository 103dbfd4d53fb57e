package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

type verdict struct {
	kind   kind
	why    string
	failed []failure
	took   time.Duration
}

type kind int

const (
	green kind = iota
	red
	broken // The run proves nothing: it had no build, no tests, no servers, or no end.
)

func (v verdict) join(other verdict) verdict {
	switch {
	case v.kind == broken:
		return v
	case other.kind == broken:
		return other
	}
	return verdict{kind: max(v.kind, other.kind), failed: append(v.failed, other.failed...)}
}

type failure struct{ test, said string }

func (f failure) String() string {
	if f.said == "" {
		return f.test
	}
	return f.test + ": " + f.said
}

type testEvent struct {
	Action, Test, Output, FailedBuild string
}

func judge(events []byte, passed bool) verdict {
	log := testLog{output: make(map[string]*strings.Builder)}
	for line := range bytes.Lines(events) {
		var e testEvent
		if json.Unmarshal(line, &e) == nil {
			log.add(e)
		}
	}
	switch why := log.problem(); {
	case why != "":
		return verdict{kind: broken, why: why}
	case passed:
		return verdict{kind: green}
	case len(log.failed) > 0:
		return verdict{kind: red, failed: log.failures()}
	case strings.Contains(log.text(""), "found unexpected goroutines"):
		return verdict{kind: red, failed: []failure{{"TestMain", "leaked goroutines"}}}
	}
	return verdict{kind: broken, why: lastLines(log.build.String() + log.text(""))}
}

// The key "" holds the output of the package itself.
type testLog struct {
	output map[string]*strings.Builder
	build  strings.Builder
	failed []string
	ran    int
	noGo   bool
}

func (l *testLog) add(e testEvent) {
	switch e.Action {
	case "output":
		if l.output[e.Test] == nil {
			l.output[e.Test] = new(strings.Builder)
		}
		l.output[e.Test].WriteString(e.Output)
	case "build-output":
		l.build.WriteString(e.Output)
	case "build-fail":
		l.noGo = true
	case "run":
		l.ran++
	case "fail":
		l.noGo = l.noGo || e.FailedBuild != ""
		if e.Test != "" {
			l.failed = append(l.failed, e.Test)
		}
	}
}

func (l *testLog) text(test string) string {
	if l.output[test] == nil {
		return ""
	}
	return l.output[test].String()
}

func (l *testLog) problem() string {
	if l.noGo {
		return "does not build: " + lastLines(l.build.String())
	}
	if l.ran == 0 {
		return strings.TrimSpace("no test ran " + l.build.String())
	}
	for _, text := range l.output {
		if strings.Contains(text.String(), "panic: test timed out") {
			return "the tests timed out"
		}
		for _, m := range serverProblem.FindAllStringSubmatch(text.String(), -1) {
			// A problem of the test servers says nothing about the mutant. A failed drop or delete is no such problem:
			// it also happens with healthy servers, if a test has left a connection or a file open.
			if !strings.HasPrefix(m[1], "drop ") && !strings.HasPrefix(m[1], "delete ") {
				return "the test servers failed: " + m[1]
			}
		}
	}
	return ""
}

var serverProblem = regexp.MustCompile(`(?m)^\s+\w+\.go:\d+: testservers: (.*)$`)

// If a subtest failed, its parent is left out.
func (l *testLog) failures() []failure {
	slices.Sort(l.failed)
	var list []failure
	for i, test := range l.failed {
		if i+1 == len(l.failed) || !strings.HasPrefix(l.failed[i+1], test+"/") {
			list = append(list, failure{test, firstWords(l.text(test))})
		}
	}
	return list
}

var (
	// The line of a failed seed comes after the steps of the seed.
	seed      = regexp.MustCompile(`(?m)^\s+\w+\.go:\d+: (seed \d+: .+)$`)
	violated  = regexp.MustCompile(`(?m)^VIOLATED +(\w+(?: \w+)*)  `)
	panicked  = regexp.MustCompile(`(?m)^((?:panic|fatal error): .*)$`)
	message   = regexp.MustCompile(`\tMessages:\s+(.*)`)
	assertion = regexp.MustCompile(`(?s)\tError:\s+(.*?)\n\s+\tTest:`)
	logged    = regexp.MustCompile(`(?m)^\s+\w+\.go:\d+: (.+)$`)
)

// A message that the test itself printed has priority over the message of an assertion.
func firstWords(output string) string {
	if seeds := seed.FindAllStringSubmatch(output, -1); len(seeds) > 0 {
		return fmt.Sprintf("%s (%d seeds in all)", shorten(seeds[0][1]), len(seeds))
	}
	if checks := violated.FindAllStringSubmatch(output, -1); len(checks) > 0 {
		names := make([]string, len(checks))
		for i, c := range checks {
			names[i] = c[1]
		}
		return "violated: " + strings.Join(names, ", ")
	}
	for _, words := range []*regexp.Regexp{panicked, message, assertion, logged} {
		if m := words.FindStringSubmatch(output); m != nil {
			return shorten(m[1])
		}
	}
	return ""
}

func shorten(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if runes := []rune(s); len(runes) > 90 {
		return string(runes[:90]) + "…"
	}
	return s
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-6):], "\n")
}

func (v verdict) missed(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(v.failed, func(f failure) bool { return f.test == name || strings.HasPrefix(f.test, name+"/") })
	})
}

func (v verdict) saw(word string) bool {
	return slices.ContainsFunc(v.failed, func(f failure) bool { return strings.HasPrefix(f.said, word+" ") })
}

func (v verdict) killers() string {
	if len(v.failed) > 2 {
		return fmt.Sprintf("%s; and %d more", v.failed[0], len(v.failed)-1)
	}
	var list []string
	for _, f := range v.failed {
		list = append(list, f.String())
	}
	return strings.Join(list, "; ")
}
