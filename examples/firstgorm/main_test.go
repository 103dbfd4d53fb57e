package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/examples/internal/readme"
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

func TestReadmesSecondProgramPrintsWhatTheReadmeShows(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	var problems bytes.Buffer
	run := exec.Command(program)
	run.Env = append(os.Environ(), asItself+"=1", "SHOP_DSN="+testservers.Database(t), "SHOP_REDIS="+testservers.SharedRedis(t).Addr())
	run.Stderr = &problems
	printed, err := run.Output()
	require.NoError(t, err, "%s", &problems)
	readme.RequirePrints(t, string(printed))
}
