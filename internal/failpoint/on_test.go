//go:build failpoints

package failpoint

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

const rounds = 5

func TestMain(m *testing.M) {
	if os.Getenv(Env) != "" {
		for i := range rounds {
			fmt.Println(i)
			Reach(EnqueueNext)
			Reach(Enqueued)
		}
		return
	}
	os.Exit(m.Run())
}

func TestPointsListsEveryConstant(t *testing.T) {
	var want []Point
	for _, p := range declared(t) {
		want = append(want, p.point)
	}
	require.Equal(t, want, Points())
}

func reach(t *testing.T, armed string) (farewell string, begun int, err error) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	var out, wrong bytes.Buffer
	child := exec.Command(self)
	child.Env = append(os.Environ(), Env+"="+armed)
	child.Stdout, child.Stderr = &out, &wrong
	err = child.Run()
	return wrong.String(), bytes.Count(out.Bytes(), []byte("\n")), err
}

func TestProcessDiesAtTheNthTimeItReachesThePoint(t *testing.T) {
	for armed, want := range map[string]int{"enqueued": 1, "enqueued:1": 1, "enqueued:3": 3} {
		farewell, begun, err := reach(t, armed)
		require.ErrorContains(t, err, "killed", armed)
		require.Equal(t, Farewell+"enqueued\n", farewell)
		require.Equal(t, want, begun, armed)
	}
}

func TestProcessLivesOnWhenThePointIsReachedLessOften(t *testing.T) {
	farewell, begun, err := reach(t, fmt.Sprintf("enqueued:%d", rounds+1))
	require.NoError(t, err)
	require.Empty(t, farewell)
	require.Equal(t, rounds, begun)
}

func TestWrongPointIsRefused(t *testing.T) {
	for _, armed := range []string{"no-such-point", "enqueued:0", "enqueued:x", ":1"} {
		farewell, begun, err := reach(t, armed)
		require.ErrorContains(t, err, "exit status 2", armed)
		require.Contains(t, farewell, Env)
		require.Zero(t, begun)
	}
}
