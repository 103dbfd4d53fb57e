package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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

func TestReadmesProgramIsThisOne(t *testing.T) {
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "```go\n"+string(program)+"```\n")
}

func TestFirstProgramClosesItsOrderAgainAndAgain(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	where := t.TempDir()
	for range 2 { // The second run finds the file of the first.
		run := exec.Command(program)
		run.Dir, run.Env = where, append(os.Environ(), asItself+"=1")
		said, err := run.CombinedOutput()
		require.NoError(t, err, "%s", said)
		require.Equal(t, 1, strings.Count(string(said), "closing order"), "%s", said)
	}
}
