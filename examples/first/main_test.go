package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadmesProgramIsThisOne(t *testing.T) {
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "```go\n"+string(program)+"```\n")
}

func TestFirstProgramClosesItsOrderAgainAndAgain(t *testing.T) {
	program := filepath.Join(t.TempDir(), "first")
	build, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", build)
	where := t.TempDir()
	for range 2 { // its file is there the second time
		run := exec.Command(program)
		run.Dir = where
		said, err := run.CombinedOutput()
		require.NoError(t, err, "%s", said)
		require.Equal(t, 1, strings.Count(string(said), "closing order"), "%s", said)
	}
}
