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
	"time"
)

type child struct {
	servers servers
	lease   time.Duration
	current atomic.Value // string: the address of the last process
	process *exec.Cmd
	stdin   io.Closer // the service stops when it is closed, even if this process is killed
}

func (c *child) address() string {
	address, _ := c.current.Load().(string)
	return address
}

func (c *child) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c.process = exec.Command(self, "-addr", "127.0.0.1:0", "-until-eof", "-lease", c.lease.String(), "-redis-prefix", c.servers.prefix)
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
	address, isFound := strings.CutPrefix(strings.TrimSpace(line), greeting)
	if !isFound {
		return fmt.Errorf("the service did not start: %q: %w", line, errors.Join(err, c.kill()))
	}
	c.current.Store(address)
	return nil
}

func (c *child) kill() error {
	if err := c.process.Process.Kill(); err != nil {
		return err
	}
	_ = c.process.Wait() // Wait reports the kill as an error.
	return nil
}

func (c *child) stop() error {
	if err := c.stdin.Close(); err != nil {
		return err
	}
	return c.process.Wait()
}
