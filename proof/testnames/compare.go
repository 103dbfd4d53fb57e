package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

type rule struct {
	old, successor, reason string
	segment                bool
}

// parseRules reads rules, one in each line. It skips empty lines and lines that begin with #. A rule has one of these
// forms:
//
//	TestOld -> TestNew                also for its subtests
//	TestOld/case -> TestNew/other     one subtest, and those below it
//	*/old -> */new                    a segment of any subtest's name
//	TestOld: the reason why TestOld needs no successor
func parseRules(text string) ([]rule, error) {
	var rules []rule
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if old, successor, ok := strings.Cut(line, " -> "); ok {
			o, s := strings.CutPrefix(old, "*/")
			n, also := strings.CutPrefix(successor, "*/")
			if s != also || o == "" || n == "" {
				return nil, fmt.Errorf("want OLD -> NEW: %q", line)
			}
			rules = append(rules, rule{old: o, successor: n, segment: s})
			continue
		}
		old, reason, ok := strings.Cut(line, ": ")
		if !ok || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("want OLD -> NEW or OLD: REASON: %q", line)
		}
		rules = append(rules, rule{old: old, reason: reason})
	}
	return rules, nil
}

func (r rule) follow(name string) (string, bool) {
	if r.segment {
		segments := strings.Split(name, "/")
		about := false
		for i := 1; i < len(segments); i++ {
			if segments[i] == r.old {
				segments[i], about = r.successor, true
			}
		}
		return strings.Join(segments, "/"), about
	}
	rest, about := strings.CutPrefix(name, r.old)
	if !about || rest != "" && rest[0] != '/' {
		return "", false
	}
	return r.successor + rest, true
}

func compare(before, after record, rules []rule) (problems []string, used int) {
	all, ran := before.counts()
	allNow, ranNow := after.counts()
	applied := make([]bool, len(rules))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		now, excused := name, false
		for i, r := range rules {
			next, about := r.follow(now)
			if !about || allNow[now] >= all[name] {
				continue
			}
			applied[i] = true
			if r.reason != "" {
				excused = true
				break
			}
			now = next
		}
		switch {
		case excused:
		case allNow[now] < all[name] && now != name:
			problems = append(problems, fmt.Sprintf("%s: its successor %s is missing", name, now))
		case allNow[now] < all[name]:
			problems = append(problems, fmt.Sprintf("%s: is missing%s", name, times(all[name], allNow[now])))
		case ranNow[now] < ran[name]:
			problems = append(problems, fmt.Sprintf("%s: ran before, and is skipped now", now))
		}
	}
	for i, r := range rules {
		if applied[i] {
			used++
		} else {
			problems = append(problems, fmt.Sprintf("%s: no missing test has this name; remove the line", r.old))
		}
	}
	return problems, used
}

func times(before, now int) string {
	if before == 1 {
		return ""
	}
	return fmt.Sprintf(": was in %d packages, and is in %d", before, now)
}
