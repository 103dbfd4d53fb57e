package main

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

// child is an instance of the service in a process of its own, which may be killed and started again.
type child struct {
	servers  servers
	settings settings
	byHand   bool
	current  atomic.Value // string: the address, of the last process that ran
	process  *exec.Cmd
	stdin    io.Closer // the service ends with it, even when we are killed ourselves
}

// address is where the instance listens, or listened last.
func (c *child) address() string {
	address, _ := c.current.Load().(string)
	return address
}

// start returns when the instance listens.
func (c *child) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	arguments := append([]string{"-addr", "127.0.0.1:0", "-until-eof", "-name", c.servers.name}, c.settings.arguments()...)
	if c.byHand {
		arguments = append(arguments, "-by-hand")
	}
	c.process = exec.Command(self, arguments...)
	c.process.Env = append(os.Environ(), c.servers.environment()...)
	c.process.Stderr = os.Stderr
	stdout, err := c.process.StdoutPipe()
	if err != nil {
		return err
	}
	if c.stdin, err = c.process.StdinPipe(); err != nil {
		return err
	}
	if err := c.process.Start(); err != nil {
		return err
	}
	unwatch := context.AfterFunc(ctx, func() { _ = c.process.Process.Kill() })
	defer unwatch()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address, found := strings.CutPrefix(strings.TrimSpace(line), greeting)
	if !found {
		return fmt.Errorf("the service did not start: %q: %w", line, errors.Join(err, c.kill()))
	}
	c.current.Store(address)
	return nil
}

// kill ends the instance as a power cut would.
func (c *child) kill() error {
	if err := c.process.Process.Kill(); err != nil {
		return err
	}
	_ = c.process.Wait() // it reports the kill
	return nil
}

// stop ends the instance in order, and returns when it has finished what it had begun.
func (c *child) stop() error {
	if err := c.process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return c.process.Wait()
}
