package intake

import (
	"os"
	"testing"

	"github.com/compensator-go/compensator/internal/harness"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		runChild()
		return
	}
	harness.Main(m)
}
