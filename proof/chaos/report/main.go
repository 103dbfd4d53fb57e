// Command report describes a chaos run for human readers. It writes DIR/report.md, and a picture of the run as
// DIR/report.png and DIR/report.svg:
//
//	go run ./report DIR
//
// The exit status is 0 for every verdict, and 2 if the history cannot be read.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/compensator-go/compensator/proof/chaos/check/verdict"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: report DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	}
}

func run(dir string) error {
	l, err := verdict.Load(dir)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "report.md"), []byte(page(l, verdict.Judge(l))), 0o644); err != nil {
		return err
	}
	return draw(l, filepath.Join(dir, "report.png"), filepath.Join(dir, "report.svg"))
}
