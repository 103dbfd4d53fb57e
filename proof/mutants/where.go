package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

type testPlace struct{ module, dir string } // Both paths are relative to the root.

var testDeclaration = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(\w \*testing\.[TF]\)`)

func (t *tree) addTests(file, source string) {
	if !strings.HasSuffix(file, "_test.go") {
		return
	}
	place := testPlace{module: t.moduleOf(path.Dir(file)), dir: path.Dir(file)}
	for _, found := range testDeclaration.FindAllStringSubmatch(source, -1) {
		if !slices.Contains(t.tests[found[1]], place) {
			t.tests[found[1]] = append(t.tests[found[1]], place)
		}
	}
}

func (t *tree) moduleOf(dir string) string {
	for dir != "." {
		if _, err := os.Stat(filepath.Join(t.root, dir, "go.mod")); err == nil {
			return dir
		}
		dir = path.Dir(dir)
	}
	return dir
}

func (t *tree) testCommands(names string) ([]command, error) {
	selected, packages := make(map[string][]string), make(map[string][]string)
	for name := range strings.SplitSeq(names, "|") {
		test, _, _ := strings.Cut(name, "/")
		if len(t.tests[test]) == 0 {
			return nil, fmt.Errorf("there is no test %s", test)
		}
		for _, place := range t.tests[test] {
			if !slices.Contains(selected[place.module], name) {
				selected[place.module] = append(selected[place.module], name)
			}
			packages[place.module] = append(packages[place.module], place.pattern())
		}
	}
	var commands []command
	for module, names := range selected {
		slices.Sort(packages[module])
		args := append([]string{"-timeout=10m", "-run=" + anchored(strings.Join(names, "|"))}, slices.Compact(packages[module])...)
		commands = append(commands, command{module, args})
	}
	slices.SortFunc(commands, func(a, b command) int { return strings.Compare(a.dir, b.dir) })
	return commands, nil
}

// testOf returns an error if no package has the test, or several have it.
func (t *tree) testOf(test string, args ...string) ([]command, error) {
	if len(t.tests[test]) != 1 {
		return nil, fmt.Errorf("%d packages have a test called %s, want one", len(t.tests[test]), test)
	}
	place := t.tests[test][0]
	own := slices.IndexFunc(args, func(arg string) bool {
		return strings.HasPrefix(arg, "-seeds") || strings.HasPrefix(arg, "-kills") || strings.HasPrefix(arg, "-chaos")
	})
	return []command{{place.module, slices.Insert(slices.Clone(args), own, place.pattern())}}, nil
}

func (p testPlace) pattern() string {
	if p.dir == p.module {
		return "."
	}
	return "./" + strings.TrimPrefix(p.dir, strings.TrimPrefix(p.module+"/", "./"))
}
