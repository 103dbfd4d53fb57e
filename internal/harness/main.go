package harness

import (
	"fmt"
	"os"
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
	code := testservers.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
