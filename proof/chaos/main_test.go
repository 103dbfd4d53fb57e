package chaos

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/compensator-go/compensator/internal/testservers"
)

func TestMain(m *testing.M) {
	if RunApp() {
		return // This process was started as an app of a run, so it runs no tests.
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
