package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-addr" {
		main() // A load test has started this process as the service.
		return
	}
	os.Exit(testservers.Main(m))
}

func TestServiceKilledUnderLoadClosesEveryOrderOnce(t *testing.T) {
	var out bytes.Buffer
	redis := testservers.SharedRedis(t)
	err := run(t.Context(), []string{
		"load", "-n", "300", "-rate", "150", "-earliest", "500ms", "-latest", "2s", "-skus", "20",
		"-kill", "2", "-gap", "200ms", "-lease", "1s",
		"-mysql-dsn", testservers.Database(t), "-redis-addr", redis.Addr(), "-redis-prefix", redis.Prefix(t),
	}, &out)
	t.Log("\n" + out.String())
	require.NoError(t, err)
	require.Contains(t, out.String(), "ok     orders closed early: 0, want 0\n")
	require.Contains(t, out.String(), "killed 2 times")
	require.NotContains(t, out.String(), "WRONG")
}

func TestLoadOnWrongBooksFails(t *testing.T) {
	b := &books{orders: map[string]int{stateClosed: 9, stateOpen: 1}, late: lateness{{ms: -1, n: 1}, {ms: 3, n: 8}}}
	var out bytes.Buffer
	l := load{orders: 10, skus: 1, out: &out}
	require.ErrorIs(t, l.check(b, 10, 0), errWrong)
	for _, wrong := range []string{"orders still open", "orders closed early", "pieces left and paid", "entries succeeded"} {
		require.Contains(t, out.String(), "WRONG  "+wrong)
	}
	require.Contains(t, out.String(), "ok     orders placed")
}

func TestLatenessShowsEarlyOnes(t *testing.T) {
	var out bytes.Buffer
	l := lateness{{ms: -3, n: 1}, {ms: 4, n: 98}, {ms: 7, n: 1}}
	l.print(&out)
	require.Equal(t, 1, l.early())
	require.Equal(t, 100, l.count())
	require.Contains(t, out.String(), "p50 4  p90 4  p99 4  p99.9 7  max 7\n")
	require.Regexp(t, `early +1  #\n`, out.String())
}
