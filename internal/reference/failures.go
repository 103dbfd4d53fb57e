package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// wayToFail is a failure that tests provoke. Files named failures_test.go describe failures in comments:
//
//	// # Title of a table
//	//
//	// F12: How it fails.
//	// Result: What the library does.
//	// Action: What you do. Left out if you need to do nothing.
//
// The last line of a test's comment names the failures that the test provokes: Failure: F12, F30.
type wayToFail struct {
	number              int
	how, result, action string
}

const failuresFile = "failures_test.go"

var failureBegin = regexp.MustCompile(`^F(\d+): (.+)$`)

func failureTables(root string) (string, error) {
	titles, err := describedFailures(root)
	if err != nil {
		return "", err
	}
	tables := make([]string, 0, len(titles))
	for title := range titles {
		tables = append(tables, title)
	}
	slices.SortFunc(tables, func(a, b string) int { return cmp.Compare(titles[a][0].number, titles[b][0].number) })
	var out strings.Builder
	for i, title := range tables {
		if i > 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(&out, "## %s\n\n| | what fails | what happens | what you do |\n|---|---|---|---|\n", title)
		for _, f := range titles[title] {
			fmt.Fprintf(&out, "| F%d | %s | %s | %s |\n", f.number, f.how, f.result, cmp.Or(f.action, "–"))
		}
	}
	return out.String(), nil
}

func describedFailures(root string) (titles map[string][]*wayToFail, err error) {
	titles, found := make(map[string][]*wayToFail), make(map[int]bool)
	err = eachGoFile(root, func(name, text string) error {
		if filepath.Base(name) != failuresFile {
			return nil
		}
		comment, _, _ := strings.Cut(text, "\npackage ")
		comment = strings.ReplaceAll(strings.ReplaceAll(comment, "// ", ""), "//\n", "\n")
		title := ""
		for paragraph := range strings.SplitSeq(comment, "\n\n") {
			if heading, is := strings.CutPrefix(paragraph, "# "); is {
				title = strings.TrimSpace(heading)
				continue
			}
			if title == "" {
				continue
			}
			f, err := parseFailure(paragraph)
			switch {
			case err != nil:
				return fmt.Errorf("%s: %w", name, err)
			case f == nil:
				continue
			case found[f.number]:
				return fmt.Errorf("%s: F%d is described twice", name, f.number)
			}
			found[f.number] = true
			titles[title] = append(titles[title], f)
		}
		return nil
	})
	return titles, err
}

func parseFailure(paragraph string) (*wayToFail, error) {
	var f wayToFail
	into := &f.how
	for line := range strings.SplitSeq(strings.TrimSpace(paragraph), "\n") {
		if begin := failureBegin.FindStringSubmatch(line); begin != nil {
			f.number, _ = strconv.Atoi(begin[1])
			line = begin[2]
		} else if result, is := strings.CutPrefix(line, "Result: "); is {
			into, line = &f.result, result
		} else if action, is := strings.CutPrefix(line, "Action: "); is {
			into, line = &f.action, action
		}
		*into = strings.TrimSpace(*into + " " + line)
	}
	if f.how == "" {
		return nil, nil
	}
	if f.number == 0 || f.result == "" {
		return nil, fmt.Errorf("a failure needs a number and a line that begins with Result: %.60q", paragraph)
	}
	return &f, nil
}

func eachGoFile(root string, use func(name, text string) error) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "build", "node_modules", "testdata"}, entry.Name()):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return use(path, string(text))
	})
}
