package main

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// scenario holds the runs of one scenario. A run has one line for each statement or command. The line begins with the
// number of the connection.
type scenario [][]string

const runMark = "== run\n"

// String returns the scenario in the form that parseScenario reads.
func (s scenario) String() string {
	var b strings.Builder
	for _, run := range s {
		b.WriteString(runMark)
		for _, line := range run {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

func parseScenario(text string) (scenario, error) {
	var s scenario
	for i, run := range strings.Split(text, runMark) {
		switch {
		case i == 0 && run != "":
			return nil, errors.New("not a trace of a scenario")
		case i > 0 && run == "":
			s = append(s, nil)
		case i > 0:
			s = append(s, strings.Split(strings.TrimSuffix(run, "\n"), "\n"))
		}
	}
	if len(s) == 0 {
		return nil, errors.New("no run in the trace")
	}
	return s, nil
}

// view is a way to compare runs. It ignores certain differences.
type view struct {
	name string
	of   func(run []string) []string
}

// views are the views to try, the strictest first. Looser views are needed, because goroutines run in random order. A
// scenario that waits for a time also sends some statements more or less often.
var views = []view{
	{"every statement in order, by connection", func(run []string) []string { return run }},
	{"every statement in order", func(run []string) []string { return each(run, withoutConnection) }},
	{"every statement in order, without numbers", func(run []string) []string { return each(run, withoutNumbers) }},
	{"every statement in any order", func(run []string) []string { return sorted(each(run, withoutConnection)) }},
	{"every statement in any order, without numbers", func(run []string) []string { return sorted(each(run, withoutNumbers)) }},
	{"the different statements", func(run []string) []string { return slices.Compact(sorted(each(run, withoutConnection))) }},
	{"the different statements, without numbers", func(run []string) []string { return slices.Compact(sorted(each(run, withoutNumbers))) }},
}

func each(run []string, change func(string) string) []string {
	changed := make([]string, len(run))
	for i, line := range run {
		changed[i] = change(line)
	}
	return changed
}

func sorted(run []string) []string { return slices.Sorted(slices.Values(run)) }

func withoutConnection(line string) string {
	_, rest, _ := strings.Cut(line, " ")
	return rest
}

var (
	number    = regexp.MustCompile(`-?\b\d+\b`)
	repeats   = regexp.MustCompile(`\?(?:,\s*\?)+`)
	manyRows  = regexp.MustCompile(`(\([^()]*\?[^()]*\))(?:,\s*\([^()]*\?[^()]*\))+`)
	manyWords = regexp.MustCompile(`"\?"(?: "\?")+`)
)

// withoutNumbers removes the connection and all numbers. It also makes lists of different length equal.
func withoutNumbers(line string) string {
	line = number.ReplaceAllString(withoutConnection(line), "?")
	line = repeats.ReplaceAllString(line, "?")
	line = manyWords.ReplaceAllString(line, `"?"`)
	return manyRows.ReplaceAllString(line, "$1")
}

// agreed returns the index of the strictest view in which all runs are equal. It looks at the views from the given
// index on. It returns -1 if there is no such view.
func (s scenario) agreed(from int) int {
	for i := from; i < len(views); i++ {
		first := views[i].of(s[0])
		if !slices.ContainsFunc(s[1:], func(run []string) bool { return !slices.Equal(first, views[i].of(run)) }) {
			return i
		}
	}
	return -1
}

// compareScenarios returns the first difference of two traces of a scenario, or "". It uses the strictest view in which
// the runs of each trace are equal. If there is no such view, both traces must contain the same statements, without
// numbers.
func compareScenarios(before, after string) (string, error) {
	old, err := parseScenario(before)
	if err != nil {
		return "", err
	}
	now, err := parseScenario(after)
	if err != nil {
		return "", err
	}
	at := old.agreed(0)
	if at >= 0 {
		at = now.agreed(at)
	}
	if at < 0 {
		difference := only("-", old.all(), now.all()) + only("+", now.all(), old.all())
		return titled("any statement of any run, without numbers", difference), nil
	}
	// In this view the runs of each trace are equal, so one run of each is enough.
	a, b := views[at].of(old[0]), views[at].of(now[0])
	if strings.Contains(views[at].name, "in order") {
		return titled(views[at].name, firstDifference(strings.Join(a, "\n"), strings.Join(b, "\n"))), nil
	}
	return titled(views[at].name, only("-", counted(a), counted(b))+only("+", counted(b), counted(a))), nil
}

func titled(name, difference string) string {
	if difference == "" {
		return ""
	}
	return "  (" + name + ")\n" + difference
}

// The method all returns every statement of any run, without its numbers.
func (s scenario) all() map[string]int {
	all := make(map[string]int)
	for _, run := range s {
		for _, line := range run {
			all[withoutNumbers(line)] = 1
		}
	}
	return all
}

func counted(run []string) map[string]int {
	n := make(map[string]int)
	for _, line := range run {
		n[line]++
	}
	return n
}

// The function only lists the lines that occur more often in the map these than in the map those. Each listed line
// begins with sign.
func only(sign string, these, those map[string]int) string {
	var b strings.Builder
	for _, line := range slices.Sorted(maps.Keys(these)) {
		if n := these[line] - those[line]; n > 0 {
			fmt.Fprintf(&b, "  %s %d times: %s\n", sign, n, line)
		}
	}
	return b.String()
}
