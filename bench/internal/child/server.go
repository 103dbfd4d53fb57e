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

// startLimit is generous: a loaded machine must not turn into a failed run.
const startLimit = 90 * time.Second

// Serve runs a server until the test ends, and returns when ask is content. What it writes goes to a file in cmd.Dir.
// stop makes it end, which closes ended.
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

// await looks whether the server has ended after an answer, too: its port may be another's by now.
func await(ask func() error, ended <-chan struct{}) error {
	for limit := time.Now().Add(startLimit); ; {
		answer := ask()
		select {
		case <-ended:
			return errors.New("it ended at its start")
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

// FreePorts returns ports of 127.0.0.1 nobody listens on now.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() // only now, so that no port comes twice
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
