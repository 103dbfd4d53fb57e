// Command check judges a chaos run by the history in a directory:
//
//	go run ./check DIR
//
// The command also requires that enough happened in the run, for example that enough entries were committed. These
// demands are listed in verdict/vacuity.go.
//
// The exit status is 0 when every check held and the run met its demands. It is 1 when a check was violated. It is 2
// when the history cannot be read or the run did not meet its demands.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/compensator-go/compensator/proof/chaos/check/verdict"
)

const (
	held      = 0
	violated  = 1
	worthless = 2
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: check DIR")
		os.Exit(worthless)
	}
	os.Exit(run(os.Args[1], os.Stdout, os.Stderr))
}

func run(dir string, out, problems io.Writer) int {
	l, err := verdict.Load(dir)
	if err != nil {
		fmt.Fprintln(problems, "check: unreadable:", err)
		return worthless
	}
	v := verdict.Judge(l)
	if err := verdict.Print(out, l, v); err != nil {
		fmt.Fprintln(problems, "check:", err)
		return worthless
	}
	switch {
	case v.Violated():
		return violated
	case len(v.Vacuous) > 0:
		return worthless
	}
	return held
}
