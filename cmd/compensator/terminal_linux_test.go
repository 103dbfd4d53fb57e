package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// onTerminal returns what the program printed, and its exit code.
func onTerminal(t *testing.T, cmd *exec.Cmd, question string, answer func(type_ func(string))) (said string, code int) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer ours.Close()
	require.NoError(t, unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	theirs, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	require.NoError(t, theirs.Close())
	var all strings.Builder
	asked := false
	for buffer := make([]byte, 4096); ; {
		n, err := ours.Read(buffer)
		all.Write(buffer[:n])
		if !asked && strings.Contains(all.String(), question) {
			asked = true
			answer(func(text string) {
				_, err := ours.WriteString(text)
				require.NoError(t, err)
			})
		}
		if err != nil { // EIO means that the program has closed the terminal.
			break
		}
	}
	require.True(t, asked, "never asked %q: %s", question, all.String())
	_ = cmd.Wait()
	return all.String(), cmd.ProcessState.ExitCode()
}
