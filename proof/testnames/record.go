package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

type entry struct {
	name string
	dir  string
}

type record map[entry]bool

var declaration = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example|Benchmark)\w*)\(`)

func (r record) addDeclared(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && slices.Contains([]string{".git", "build", "testdata", "node_modules"}, d.Name()):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, found := range declaration.FindAllStringSubmatch(string(text), -1) {
			if found[1] != "TestMain" {
				r[entry{found[1], filepath.ToSlash(dir)}] = false
			}
		}
		return nil
	})
}

func (r record) addRunFile(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	known := 0
	for lines.Scan() {
		var e struct{ Action, Package, Test string }
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Action == "" {
			continue
		}
		known++
		r.addEvent(e.Action, e.Package, e.Test)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if known == 0 {
		return errors.New("no event of go test -json in the file")
	}
	return nil
}

// addEvent ignores top-level tests, because the source lists them.
func (r record) addEvent(action, pkg, test string) {
	if !strings.Contains(test, "/") {
		return
	}
	e := entry{test, pkg}
	switch action {
	case "pass", "fail":
		r[e] = false
	case "skip":
		if _, known := r[e]; !known {
			r[e] = true
		}
	}
}

func (r record) String() string {
	lines := make([]string, 0, len(r))
	for e, skipped := range maps.All(r) {
		line := e.name + "\t" + e.dir
		if skipped {
			line += "\tskipped"
		}
		lines = append(lines, line+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func parseRecord(text string) (record, error) {
	r := make(record)
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) < 2 || len(fields) > 3 {
			return nil, fmt.Errorf("not a line of a record: %q", line)
		}
		r[entry{fields[0], fields[1]}] = len(fields) == 3
	}
	return r, nil
}

func (r record) counts() (all, ran map[string]int) {
	all, ran = make(map[string]int), make(map[string]int)
	for e, skipped := range r {
		all[e.name]++
		if !skipped {
			ran[e.name]++
		}
	}
	return all, ran
}
