package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const asItself = "COMPENSATOR_TELEMETRY"

func TestMain(m *testing.M) {
	if os.Getenv(asItself) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func program(t *testing.T, args ...string) *exec.Cmd {
	self, err := os.Executable()
	require.NoError(t, err)
	run := exec.CommandContext(t.Context(), self, append(args, "-addr", "127.0.0.1:0")...)
	run.Env = append(os.Environ(), asItself+"=1", "TMPDIR="+t.TempDir())
	return run
}

func TestProgramPrintsWhatThePageShows(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/telemetry.md")
	require.NoError(t, err)
	_, shown, found := strings.Cut(string(page), "go run -C examples ./telemetry -once\n```\n\n```text\n")
	require.True(t, found)
	shown, _, _ = strings.Cut(shown, "\n```")
	run := program(t, "-once")
	printed, err := run.Output()
	require.NoError(t, err, "%s", printed)
	for _, line := range strings.Split(shown, "\n") {
		line = strings.Replace(line, ":9464/", ":…/", 1)
		pattern := "(?m)^" + strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + "$"
		assert.Regexp(t, pattern, string(printed))
	}
	assert.Len(t, strings.Split(shown, "\n"), 8)
	assert.Equal(t, placed+1, strings.Count(string(printed), `{"Name":"process close_order"`), "%s", printed)
	left, err := os.ReadDir(strings.TrimPrefix(run.Env[len(run.Env)-1], "TMPDIR="))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestProgramServesMetricsUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	run := program(t)
	out, err := run.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, run.Start())
	lines := bufio.NewReader(out)
	var page string
	_, err = fmt.Fscanf(lines, "metrics: %s\n", &page)
	require.NoError(t, err)
	answer, err := http.Get(page)
	require.NoError(t, err)
	metrics, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	assert.Contains(t, string(metrics), "\n# HELP compensator_ready ")
	require.NoError(t, run.Process.Signal(os.Interrupt))
	spans, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.NoError(t, run.Wait())
	assert.Contains(t, string(spans), `{"Name":"place_orders"`)
}
