package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/examples/internal/readme"
)

// asItself is the environment variable that makes the test binary run the program.
const asItself = "COMPENSATOR_FIRST"

func TestMain(m *testing.M) {
	if os.Getenv(asItself) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestReadmesFirstProgramPrintsWhatTheReadmeShows runs the program twice. The second run finds the file of the first.
func TestReadmesFirstProgramPrintsWhatTheReadmeShows(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	where := t.TempDir()
	for range 2 {
		var problems bytes.Buffer
		run := exec.Command(program)
		run.Dir, run.Env, run.Stderr = where, append(os.Environ(), asItself+"=1"), &problems
		printed, err := run.Output()
		require.NoError(t, err, "%s", &problems)
		readme.RequirePrints(t, string(printed))
	}
}
