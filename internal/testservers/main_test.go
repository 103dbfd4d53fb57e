package testservers

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if helper := os.Getenv(helperVariable); helper != "" {
		helpers[helper]()
		return
	}
	code := Main(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// If helperVariable is set, the test binary runs one of the helpers instead of tests.
const helperVariable = "COMPENSATOR_TESTSERVERS_HELPER"

var helpers = map[string]func(){"echo": echoHelper}
