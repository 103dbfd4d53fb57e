package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// sampleMark matches a comment in a page and the block of code below the comment. The comment says which code the page
// includes from a file that tests compile. If the comment ends with two texts, with the sign … between them, the page
// includes a range of lines. The range begins with the first line that begins with the first text. The range ends with
// the first later line that begins with the second text:
//
//	<!-- go: recipes_test.go -->                                                 the whole file
//	<!-- go: recipes_test.go ExampleSnooze -->                                   the body of a function
//	<!-- go: recipes_test.go ExampleSnooze: switch { … return compensator -->   a range of lines of the body
//	<!-- go: page_test.go follow: nextTry := … }#2 -->                            the same, to the second line that begins with }
//	<!-- file: examples/tutorial/compose.yaml -->                               a file of another language
var sampleMark = regexp.MustCompile("(?m)^<!-- (go|file): (\\S+)(?: (\\w+)(?:: (.+) … (.+))?)? -->\n```(\\w+)[^\n]*\n(?s:(.*?))^```$")

var goFence = regexp.MustCompile("(?m)^(.*)\n```go\\b")

// pagesWithSamples returns the pages for users that may include code.
func pagesWithSamples(root string) (pages []string, err error) {
	pages = []string{"README.md", "README.zh-CN.md", "compensatortest/sqlitetest/README.md", "cron/README.md", "orms/gormtx/README.md", "otel/README.md", "ui/README.md"}
	pages = slices.DeleteFunc(pages, func(name string) bool {
		_, err := os.Stat(filepath.Join(root, name))
		return err != nil
	})
	docs := filepath.Join(root, "docs")
	err = filepath.WalkDir(docs, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{"node_modules", "internals", ".vitepress"}, entry.Name()):
			return fs.SkipDir
		case strings.HasSuffix(path, ".md"):
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			pages = append(pages, filepath.ToSlash(name))
		}
		return nil
	})
	return pages, err
}

// withSamples returns the text of a page with the code that its marks name.
func withSamples(root, text string) (string, error) {
	var failed error
	text = sampleMark.ReplaceAllStringFunc(text, func(block string) string {
		parts := sampleMark.FindStringSubmatch(block)
		code, err := sample(root, parts[1] == "go", parts[2], parts[3], parts[4], parts[5])
		if err != nil {
			failed = fmt.Errorf("%s: %w", strings.SplitN(block, "\n", 2)[0], err)
			return block
		}
		return strings.TrimSuffix(block, parts[7]+"```") + code + "```"
	})
	return text, failed
}

func sample(root string, isGo bool, file, function, first, last string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil || function == "" {
		return strings.TrimRight(string(text), "\n") + "\n", err
	}
	if !isGo {
		return "", fmt.Errorf("a file of another language has no function")
	}
	body, err := bodyOf(file, text, function)
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.Trim(body, "\n"), "\n")
	if first != "" {
		begin := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), first) })
		if begin < 0 {
			return "", fmt.Errorf("no line begins with %q", first)
		}
		length := indexOfLast(lines[begin:], last)
		if length < 0 {
			return "", fmt.Errorf("no line begins with %q", last)
		}
		lines = lines[begin : begin+length+1]
	}
	return dedented(lines), nil
}

// indexOfLast returns the index of the first line that begins with the prefix `last`. It prefers a line that is
// indented like lines[0]. The suffix "#2" of the prefix asks for the second such line.
func indexOfLast(lines []string, last string) int {
	last, number, _ := strings.Cut(last, "#")
	left := 1
	if number != "" {
		left = int(number[0] - '0')
	}
	anywhere := -1
	for i, line := range lines {
		if !strings.HasPrefix(strings.TrimSpace(line), last) {
			continue
		}
		if anywhere < 0 {
			anywhere = i
		}
		if depth(line) == depth(lines[0]) {
			if left--; left == 0 {
				return i
			}
		}
	}
	return anywhere
}

func depth(line string) int { return len(line) - len(strings.TrimLeft(line, "\t")) }

// bodyOf returns the text between the braces of a function.
func bodyOf(file string, text []byte, function string) (string, error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, text, 0)
	if err != nil {
		return "", err
	}
	for _, decl := range parsed.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Name.Name == function {
			return string(text[fset.Position(f.Body.Lbrace).Offset+1 : fset.Position(f.Body.Rbrace).Offset]), nil
		}
	}
	return "", fmt.Errorf("no function %s", function)
}

// dedented returns lines without the tabs that all of them begin with.
func dedented(lines []string) string {
	fewest := -1
	for _, line := range lines {
		if strings.TrimSpace(line) == "" {
			continue
		}
		if tabs := depth(line); fewest < 0 || tabs < fewest {
			fewest = tabs
		}
	}
	var out strings.Builder
	for _, line := range lines {
		out.WriteString(line[min(max(fewest, 0), depth(line)):] + "\n")
	}
	return out.String()
}
