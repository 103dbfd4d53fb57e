package main

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// scenario holds the traces of several runs of one scenario. A run has one line for each statement or command. A line
// begins with the number of the connection.
type scenario [][]string

const runMark = "== run\n"

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

type view struct {
	name string
	of   func(run []string) []string
}

// A view leaves out details in which two runs of one scenario may differ, because goroutines run in random order. The
// comparison uses the first view in which the runs are equal. So the views go from the strictest to the loosest.
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

// withoutNumbers also shortens lists, so that lists of different lengths become equal.
func withoutNumbers(line string) string {
	line = number.ReplaceAllString(withoutConnection(line), "?")
	line = repeats.ReplaceAllString(line, "?")
	line = manyWords.ReplaceAllString(line, `"?"`)
	return manyRows.ReplaceAllString(line, "$1")
}

// agreed returns -1 if no view makes the runs equal.
func (s scenario) agreed(from int) int {
	for i := from; i < len(views); i++ {
		first := views[i].of(s[0])
		if !slices.ContainsFunc(s[1:], func(run []string) bool { return !slices.Equal(first, views[i].of(run)) }) {
			return i
		}
	}
	return -1
}

// compareScenarios uses the strictest view in which the runs of each trace are equal. If there is no such view, both
// traces must contain the same statements, without numbers.
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
		difference := surplus("-", old.distinct(), now.distinct()) + surplus("+", now.distinct(), old.distinct())
		return titled("any statement of any run, without numbers", difference), nil
	}
	a, b := views[at].of(old[0]), views[at].of(now[0])
	if strings.Contains(views[at].name, "in order") {
		return titled(views[at].name, firstDifference(strings.Join(a, "\n"), strings.Join(b, "\n"))), nil
	}
	return titled(views[at].name, surplus("-", counted(a), counted(b))+surplus("+", counted(b), counted(a))), nil
}

func titled(name, difference string) string {
	if difference == "" {
		return ""
	}
	return "  (" + name + ")\n" + difference
}

func (s scenario) distinct() map[string]int {
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

func surplus(sign string, a, b map[string]int) string {
	var out strings.Builder
	for _, line := range slices.Sorted(maps.Keys(a)) {
		if n := a[line] - b[line]; n > 0 {
			fmt.Fprintf(&out, "  %s %d times: %s\n", sign, n, line)
		}
	}
	return out.String()
}
