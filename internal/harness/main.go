package harness

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/compensator-go/compensator/internal/testservers"
)

const childEnv = "COMPENSATOR_TEST_CHILD"

// Main runs the tests, and fails if goroutines are left at the end. In a child process it runs the child's program
// instead.
func Main(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		runChild()
		return
	}
	waitTogether()
	code := testservers.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// waitTogether lets three tests per processor run at the same time, because most tests only wait for leases, reconciler
// rounds and servers. If the command line has a flag for parallel tests or for fuzzing, waitTogether changes nothing.
func waitTogether() {
	flag.Parse()
	isGiven := false
	flag.Visit(func(f *flag.Flag) {
		isGiven = isGiven || f.Name == "test.parallel" || f.Name == "test.fuzz" || f.Name == "test.fuzzworker"
	})
	if isGiven {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
}
