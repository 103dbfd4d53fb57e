package limits

import (
	"testing"

	"github.com/compensator-go/compensator/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
