package testservers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// echoHelper sends its process id to each client.
func echoHelper() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[len(os.Args)-1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			os.Exit(1)
		}
		fmt.Fprintln(conn, os.Getpid())
		_ = conn.Close()
	}
}

func echoProgram(t *testing.T) *program {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	dir, err := serverDir()
	require.NoError(t, err)
	p := &program{path: "/usr/bin/env", dir: dir, probe: askEcho, args: func(port int) ([]string, error) {
		return []string{helperVariable + "=echo", self, strconv.Itoa(port)}, nil
	}}
	t.Cleanup(p.discard)
	return p
}

func askEcho(address string, pid int) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	// Another server may accept the connection and never answer.
	if err := conn.SetDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		return err
	}
	var got int
	if _, err := fmt.Fscan(conn, &got); err != nil || got != pid {
		return errors.Join(err, errPortTaken)
	}
	return nil
}

func TestRestartWaitsForAPortThatAStrangerTook(t *testing.T) {
	t.Parallel()
	server := echoProgram(t)
	require.NoError(t, server.launch())
	require.NoError(t, server.kill())
	stranger, err := net.Listen("tcp", server.addr())
	require.NoError(t, err)
	restarted := make(chan error)
	go func() { restarted <- server.restart() }()
	assert.True(t, waitUntil(startLimit, func() bool { return strings.Contains(server.errorLog(), "already in use") }))
	require.NoError(t, stranger.Close())
	require.NoError(t, <-restarted)
}

func TestLaunchTakesAnotherPortWhenAStrangerTookTheFirst(t *testing.T) {
	t.Parallel()
	server := echoProgram(t)
	args, tries := server.args, 0
	server.args = func(port int) ([]string, error) {
		if tries++; tries > 1 {
			return args(port)
		}
		stranger, err := net.Listen("tcp", localAddr(port))
		require.NoError(t, err)
		t.Cleanup(func() { _ = stranger.Close() })
		return args(port)
	}
	require.NoError(t, server.launch())
	assert.Equal(t, 2, tries)
}

func TestLaunchFailureShowsTheServersLog(t *testing.T) {
	t.Parallel()
	server := echoProgram(t)
	server.args = func(int) ([]string, error) { return []string{"sh", "-c", "echo the reason >&2; exit 3"}, nil }
	assert.ErrorContains(t, server.launch(), "the reason")
	assert.NoDirExists(t, server.dir)
}

func TestSweepSparesDirectoriesInUse(t *testing.T) {
	home := shortDir(t)
	for _, name := range []string{"run-dead", "run-alive"} {
		require.NoError(t, os.Mkdir(filepath.Join(home, name), 0o700))
	}
	alive, err := lockFile(filepath.Join(home, "run-alive", "lock"), true)
	require.NoError(t, err)
	defer alive.Close()
	removeOldDirs(home)
	assert.DirExists(t, filepath.Join(home, "run-alive"))
	assert.NoDirExists(t, filepath.Join(home, "run-dead"))
}

func TestAStrangersServerIsNotTakenForOurs(t *testing.T) {
	t.Parallel()
	assert.ErrorIs(t, probeRedis(NewRedis(t).Addr(), -1), errPortTaken)
	assert.Error(t, probeSQL(NewSQL(t).Addr(), "/elsewhere"))
}
