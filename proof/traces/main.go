// Program traces compares the behaviour of two trees, step by step. It shows that a change only moves or renames code.
//
//	make traces TRACES=build/traces/before      # in each tree
//	go run ./proof/traces build/traces/before build/traces/after
//
// No trace contains a Go identifier.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := work(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "traces:", err)
		os.Exit(1)
	}
}

func work(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("traces", flag.ContinueOnError)
	renamed := flags.String("renamed", "", "a file with scenarios, and words of decisions, that have other names now: old -> new")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 2 {
		return errors.New("want two directories of traces")
	}
	before, after := flags.Arg(0), flags.Arg(1)
	words, err := readWords(*renamed)
	if err != nil {
		return err
	}
	differ := 0
	for _, part := range []struct {
		name    string
		compare func(before, after string) (string, error)
	}{
		{"decisions", func(before, after string) (string, error) { return firstDifference(words.Replace(before), after), nil }},
		{"sql", compareScenarios},
		{"redis", compareScenarios},
	} {
		n, err := compareFiles(out, filepath.Join(before, part.name), filepath.Join(after, part.name), words, part.compare)
		if err != nil {
			return err
		}
		differ += n
	}
	if differ > 0 {
		return fmt.Errorf("%d traces differ", differ)
	}
	return nil
}

func readWords(file string) (*strings.Replacer, error) {
	if file == "" {
		return strings.NewReplacer(), nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var pairs []string
	for line := range strings.Lines(string(text)) {
		old, now, ok := strings.Cut(strings.TrimSpace(line), " -> ")
		if !ok {
			return nil, fmt.Errorf("%s: want OLD -> NEW: %q", file, line)
		}
		pairs = append(pairs, old, now)
	}
	return strings.NewReplacer(pairs...), nil
}

func compareFiles(out io.Writer, before, after string, words *strings.Replacer, compare func(before, after string) (string, error)) (differ int, err error) {
	there, err := namesIn(before)
	if err != nil {
		return 0, err
	}
	formerly := make(map[string]string)
	for i, name := range there {
		there[i] = words.Replace(name)
		formerly[there[i]] = name
	}
	here, err := namesIn(after)
	if err != nil {
		return 0, err
	}
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(there, here))))
	for _, name := range all {
		if formerly[name] == "" {
			fmt.Fprintf(out, "%s is only in %s\n", name, after)
			differ++
			continue
		}
		old, err := os.ReadFile(filepath.Join(before, formerly[name]))
		if err != nil {
			return 0, err
		}
		now, err := os.ReadFile(filepath.Join(after, name))
		if err != nil {
			fmt.Fprintf(out, "%s is only in %s\n", name, before)
			differ++
			continue
		}
		difference, err := compare(string(old), string(now))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		if difference != "" {
			fmt.Fprintf(out, "%s differs:\n%s", filepath.Join(filepath.Base(before), name), difference)
			differ++
		}
	}
	fmt.Fprintf(out, "%s: %d traces, %d differ\n", filepath.Base(before), len(all), differ)
	return differ, nil
}

func namesIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s: has no traces", dir)
	}
	return names, err
}

const shownBefore = 5

func firstDifference(before, after string) string {
	if before == after {
		return ""
	}
	old, now := strings.Split(before, "\n"), strings.Split(after, "\n")
	i := 0
	for i < len(old) && i < len(now) && old[i] == now[i] {
		i++
	}
	var b strings.Builder
	for _, line := range old[max(0, i-shownBefore):i] {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	line := func(lines []string) string {
		if i < len(lines) && lines[i] != "" {
			return lines[i]
		}
		return "(the end)"
	}
	fmt.Fprintf(&b, "  - %s\n  + %s\n  step %d of %d and %d\n", line(old), line(now), i+1, len(old), len(now))
	return b.String()
}
