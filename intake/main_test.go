package intake

import (
	"os"
	"testing"

	"github.com/compensator-go/compensator/internal/harness"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		runChild() // This process is a child that a test kills.
		return
	}
	harness.Main(m)
}
