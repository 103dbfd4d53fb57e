package testservers

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func init() { helpers["parent"] = parentHelper }

func parentHelper() {
	child, err := startProcess(exec.Command("sleep", "1000"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(child.pid())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestNoServerOutlivesAKilledTestProcess(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), helperVariable+"=parent")
	_, err = parent.StdinPipe() // This stays open, so that only a signal ends the parent.
	require.NoError(t, err)
	stdout, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	child, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err, line)
	require.NoError(t, syscall.Kill(child, 0), "the child does not run")

	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	assert.True(t, waitUntil(startLimit, func() bool { return gone(child) }), "child %d lives on", child)
}

// A zombie counts as ended, because perhaps no other process waits for it.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}
