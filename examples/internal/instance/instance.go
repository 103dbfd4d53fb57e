// Package instance runs a service in a separate process, which can be killed and started again.
package instance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
)

// Greeting precedes the address on the first line that a service prints.
const Greeting = "listening on "

// Instance runs this program again with other arguments. Only Address may be called concurrently.
type Instance struct {
	Arguments   []string // arguments after -addr and -until-eof
	Environment []string // variables in addition to this process's environment

	current atomic.Value // holds a string: the address of the last process
	process *exec.Cmd
	stdin   io.Closer // the service stops when this is closed, which also happens when this process is killed
}

// Address returns the address on which the instance listens or last listened.
func (i *Instance) Address() string {
	address, _ := i.current.Load().(string)
	return address
}

// Start starts the instance and returns when it listens.
func (i *Instance) Start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	address := i.Address()
	if address == "" {
		address = "127.0.0.1:0"
	}
	i.process = exec.Command(self, append([]string{"-addr", address, "-until-eof"}, i.Arguments...)...)
	i.process.Env = append(os.Environ(), i.Environment...)
	i.process.Stderr = os.Stderr
	stdout, err := i.process.StdoutPipe()
	if err != nil {
		return err
	}
	if i.stdin, err = i.process.StdinPipe(); err != nil {
		return err
	}
	if err := i.process.Start(); err != nil {
		return err
	}
	unwatch := context.AfterFunc(ctx, func() { _ = i.process.Process.Kill() })
	defer unwatch()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address, isFound := strings.CutPrefix(strings.TrimSpace(line), Greeting)
	if !isFound {
		return fmt.Errorf("the service did not start: %q: %w", line, errors.Join(err, i.Kill()))
	}
	i.current.Store(address)
	return nil
}

// Kill ends the instance at once with SIGKILL.
func (i *Instance) Kill() error {
	if err := i.process.Process.Kill(); err != nil {
		return err
	}
	_ = i.process.Wait() // Ignore the error, because Wait reports the kill as an error.
	return nil
}

// Stop shuts the instance down gracefully and waits for its end.
func (i *Instance) Stop() error {
	if err := i.process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return i.process.Wait()
}

// UntilEOF returns a context that also ends when standard input ends.
func UntilEOF(ctx context.Context) context.Context {
	ctx, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, os.Stdin) // An error of Copy also ends the context.
	}()
	return ctx
}
