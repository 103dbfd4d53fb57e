package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
)

// asItself is the environment variable that makes the test binary run the program.
const asItself = "COMPENSATOR_FIRST"

func TestMain(m *testing.M) {
	if os.Getenv(asItself) != "" {
		main()
		return
	}
	os.Exit(testservers.Main(m))
}

func TestReadmesSecondProgramShipsItsOrder(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	run := exec.Command(program)
	run.Env = append(os.Environ(), asItself+"=1", "SHOP_DSN="+testservers.Database(t), "SHOP_REDIS="+testservers.SharedRedis(t).Addr())
	said, err := run.CombinedOutput()
	require.NoError(t, err, "%s", said)
	require.Regexp(t, `(?m)^shipping order 42 key \d+-0$`, string(said))
}
