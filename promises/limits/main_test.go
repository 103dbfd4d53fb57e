package limits

import (
	"os"
	"testing"

	"github.com/compensator-go/compensator/internal/harness"
)

func TestMain(m *testing.M) {
	if program := os.Getenv(workerEnv); program != "" {
		runWorker(program)
		return
	}
	harness.Main(m)
}
