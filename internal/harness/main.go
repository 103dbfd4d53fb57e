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

// childEnv is an environment variable. It holds the program that a re-executed test binary runs instead of its tests.
const childEnv = "COMPENSATOR_TEST_CHILD"

// Main is the TestMain of packages that use this harness. It runs the tests, and fails if goroutines are left at the
// end. In a child process it runs the child's program instead.
func Main(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		runChild() // This process is a child that a test kills.
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

// waitTogether raises the number of parallel tests above the number of processors, unless -parallel is set. Most tests
// spend their time waiting for leases, reconciler rounds and servers.
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
