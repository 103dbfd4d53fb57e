// Package instance runs a service as a process of its own, which may be killed and started again.
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

// Greeting comes before the address that a service has got, on its first line.
const Greeting = "listening on "

// Instance is this program once more, with these arguments. One goroutine at a time may use it; Address any.
type Instance struct {
	Arguments   []string // -addr and -until-eof come before them
	Environment []string // added to ours

	current atomic.Value // string: the address, of the last process that ran
	process *exec.Cmd
	stdin   io.Closer // the service ends with it, even when we are killed ourselves
}

// Address is where the instance listens, or listened last.
func (i *Instance) Address() string {
	address, _ := i.current.Load().(string)
	return address
}

// Start returns when the instance listens: where it did before, if it did.
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
	address, found := strings.CutPrefix(strings.TrimSpace(line), Greeting)
	if !found {
		return fmt.Errorf("the service did not start: %q: %w", line, errors.Join(err, i.Kill()))
	}
	i.current.Store(address)
	return nil
}

// Kill ends the instance as a power cut would.
func (i *Instance) Kill() error {
	if err := i.process.Process.Kill(); err != nil {
		return err
	}
	_ = i.process.Wait() // it reports the kill
	return nil
}

// Stop ends the instance in order, and returns when it has finished what it had begun.
func (i *Instance) Stop() error {
	if err := i.process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return i.process.Wait()
}

// UntilEOF is a context that ends with standard input, too.
func UntilEOF(ctx context.Context) context.Context {
	ctx, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, os.Stdin) // an error ends it as well
	}()
	return ctx
}
