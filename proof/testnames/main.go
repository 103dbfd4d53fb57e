// Program testnames compares the names of tests and subtests before and after a change.
//
//	go run ./proof/testnames -record build/testnames/before.txt 'build/testnames/runs/*.json'
//	go run ./proof/testnames -compare build/testnames/before.txt build/testnames/after.txt
//
// A record has a line for each test, fuzz target, example and benchmark that the source of any module declares.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if err := work(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testnames:", err)
		os.Exit(1)
	}
}

func work(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("testnames", flag.ContinueOnError)
	to := flags.String("record", "", "file to write the record to; arguments: files or patterns of files with the output of go test -json")
	from := flags.String("tree", ".", "the directory whose tests are recorded")
	compared := flags.Bool("compare", false, "compare the two records given as arguments")
	successors := flags.String("successors", "proof/testnames/successors.txt", "file of the successors of missing names")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case *to != "":
		return makeRecord(*from, *to, flags.Args(), out)
	case *compared && flags.NArg() == 2:
		return compareFiles(flags.Arg(0), flags.Arg(1), *successors, out)
	}
	return errors.New("want -record FILE or -compare BEFORE AFTER")
}

func makeRecord(tree, to string, patterns []string, out io.Writer) error {
	r := make(record)
	if err := r.addDeclared(tree); err != nil {
		return err
	}
	declared := len(r)
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return fmt.Errorf("no file matches %s", pattern)
		}
		for _, file := range files {
			if err := r.addRunFile(file); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(to, []byte(r.String()), 0o666); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%s: %d tests, %d subtests\n", to, declared, len(r)-declared)
	return err
}

func compareFiles(before, after, successors string, out io.Writer) error {
	var records [2]record
	for i, file := range []string{before, after} {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if records[i], err = parseRecord(string(text)); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	text, err := os.ReadFile(successors)
	if err != nil {
		return err
	}
	rules, err := parseRules(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", successors, err)
	}
	problems, used := compare(records[0], records[1], rules)
	if len(problems) > 0 {
		return fmt.Errorf("%d problems:\n%s", len(problems), strings.Join(problems, "\n"))
	}
	_, err = fmt.Fprintf(out, "%d names before, %d after; %d lines of %s apply\n", len(records[0]), len(records[1]), used, successors)
	return err
}
