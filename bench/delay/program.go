package delay

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/compensator-go/compensator/bench/internal/child"
)

// startLimit is generous: a loaded machine must not turn into a failed run.
const startLimit = 90 * time.Second

// childAttributes lets no child outlive the benchmark, however that ends.
func childAttributes() *syscall.SysProcAttr { return child.Attributes(nil, syscall.SIGKILL) }

// startProgram runs a server in a process group of its own until the test ends, and returns when ask is content.
func startProgram(tb testing.TB, cmd *exec.Cmd, dir string, ask func() error) error {
	path := filepath.Join(dir, filepath.Base(cmd.Path)+".log")
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, log, log, childAttributes()
	if err := cmd.Start(); err != nil {
		return err
	}
	over := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(over)
	}()
	tb.Cleanup(func() { // its data is thrown away: nothing is gained by an end in order
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-over
	})
	return awaitProgram(ask, over, path)
}

func awaitProgram(ask func() error, over <-chan struct{}, log string) error {
	answer := errors.New("not asked yet")
	for limit := time.Now().Add(startLimit); answer != nil; {
		answer = ask()
		select {
		case <-over:
			text, _ := os.ReadFile(log)
			return fmt.Errorf("%s: the program ended at its start:\n%s", log, text)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(limit) {
			return fmt.Errorf("no answer after %v: %w", startLimit, answer)
		}
	}
	return nil
}

// findProgram looks where an ordinary PATH does not lead, too, and there first.
func findProgram(name string, elsewhere ...string) (string, error) {
	for _, file := range append(elsewhere, name) {
		if path, err := exec.LookPath(file); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: no %s", errNotHere, name)
}

// freePorts returns ports of 127.0.0.1 nobody listens on now.
func freePorts(n int) ([]int, error) {
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
