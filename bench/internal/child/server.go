// Package child runs the servers that a benchmark starts.
package child

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// startLimit is so long that a loaded machine does not fail the run.
const startLimit = 90 * time.Second

// Serve starts a server and returns when ask returns nil. The server's output goes to a file in cmd.Dir. At the end of
// the test Serve calls stop, which must end the process. ended is closed when the process has ended.
func Serve(tb testing.TB, cmd *exec.Cmd, ask func() error, stop func(process *os.Process, ended <-chan struct{})) error {
	path := filepath.Join(cmd.Dir, filepath.Base(cmd.Path)+".log")
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	tb.Cleanup(func() {
		stop(cmd.Process, ended)
		<-ended
	})
	if err := await(ask, ended); err != nil {
		text, _ := os.ReadFile(path)
		return fmt.Errorf("%s: %w:\n%s", cmd.Path, err, text)
	}
	return nil
}

// await checks after each answer whether the server has ended, because the answer may come from another process on the
// port.
func await(ask func() error, ended <-chan struct{}) error {
	for limit := time.Now().Add(startLimit); ; {
		answer := ask()
		select {
		case <-ended:
			return errors.New("the process ended during its start")
		case <-time.After(50 * time.Millisecond):
		}
		if answer == nil {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("no answer after %v: %w", startLimit, answer)
		}
	}
}

// FreePorts returns n ports of 127.0.0.1 that are free now.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() // Close the listeners at the end, so that no port is returned twice.
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
