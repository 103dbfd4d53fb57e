// Program tools copies the comments of Go files into Markdown files, for a linter of prose.
//
// A comment beside code ends with a full stop there, so that it is a sentence of its own.
package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: tools <directory of Go files> <directory to write>")
		os.Exit(2)
	}
	if err := copyComments(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}

func copyComments(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "build" || d.Name() == "testdata" || d.Name() == "node_modules" || d.Name() == ".git"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		out := filepath.Join(to, name+".md")
		if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
			return err
		}
		return os.WriteFile(out, []byte(commentsOf(src)), 0o644)
	})
}

// Each comment stays on the line that it has in src, and all other lines are empty.
func commentsOf(src []byte) string {
	lines := strings.Split(string(src), "\n")
	out := make([]string, len(lines))
	file := token.NewFileSet().AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return strings.Join(out, "\n")
		}
		if tok != token.COMMENT || !strings.HasPrefix(text, "// ") && !strings.HasPrefix(text, "//\t") {
			continue
		}
		p := file.Position(pos)
		text = strings.TrimPrefix(text[2:], " ")
		if beside := strings.TrimSpace(lines[p.Line-1][:p.Column-1]) != ""; beside && !strings.ContainsAny(text[len(text)-1:], ".?!:") {
			text += "."
		}
		out[p.Line-1] = text
	}
}
