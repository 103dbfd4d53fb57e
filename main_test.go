package compensator_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/compensator-go/compensator/internal/testservers"
)

func TestMain(m *testing.M) {
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
