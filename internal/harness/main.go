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

// childEnv names the program a re-executed test binary runs instead of its tests.
const childEnv = "COMPENSATOR_TEST_CHILD"

// Main is the TestMain of a package on this harness: it runs the tests or, in a process that one of them has started,
// the child's program. No goroutine may be left at the end.
func Main(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		runChild() // this process is one that a test kills
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

// waitTogether has more tests run beside each other than there are processors, unless -parallel says how many: they wait
// for leases, rounds and servers most of the time.
func waitTogether() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) {
		given = given || f.Name == "test.parallel" || f.Name == "test.fuzz" || f.Name == "test.fuzzworker"
	})
	if given {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
}
