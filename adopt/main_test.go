package adopt

import (
	"os"
	"testing"

	"github.com/compensator-go/compensator/internal/harness"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		runChild() // This process was started by a test that will kill it.
		return
	}
	harness.Main(m)
}
