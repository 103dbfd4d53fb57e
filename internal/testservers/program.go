package testservers

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// stopGrace is how long a server may take to stop in order.
const stopGrace = time.Minute

// errPortTaken means that another process took the port between its choice and the server's start.
var errPortTaken = errors.New("port is taken")

type program struct {
	path  string
	dir   string                              // directory of all files that the program writes
	args  func(port int) ([]string, error)    // called once for each port that is tried
	probe func(address string, pid int) error // returns nil when this process serves the address

	mu      sync.Mutex // guards the fields below; held while the server starts and ends
	port    int
	argv    []string
	process *process // nil if not running
}

var _ machine = (*program)(nil)

// On failure launch removes everything.
func (p *program) launch() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() {
		if err != nil {
			_ = os.RemoveAll(p.dir)
		}
	}()
	for range 10 {
		if p.port, err = freePort(); err != nil {
			return err
		}
		if p.argv, err = p.args(p.port); err != nil {
			return err
		}
		if err = p.startLocked(); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

// startLocked starts the process and waits until it answers.
func (p *program) startLocked() error {
	output, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	logOffset, err := output.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.path, p.argv...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, output, output
	cmd.Env = append(cmd.Environ(), "TMPDIR="+p.dir) // An SQL server cleans its temporary directory when it starts. In a shared directory it would delete files of other servers.
	child, err := startProcess(cmd)
	if err != nil {
		return err
	}
	probeErr := errors.New("not asked yet")
	waitUntil(startLimit, func() bool {
		if child.exited() {
			return true
		}
		probeErr = p.probe(p.addrLocked(), child.pid())
		return probeErr == nil
	})
	if probeErr == nil {
		p.process = child
		return nil
	}
	return p.startFailure(child, probeErr, logOffset)
}

func (p *program) startFailure(child *process, probeErr error, logOffset int64) error {
	hasExited := child.exited()
	if err := child.kill(); err != nil {
		return err
	}
	log := p.errorLog()
	log = log[min(len(log), int(logOffset)):]
	switch lower := strings.ToLower(log); {
	case strings.Contains(lower, "address already in use"), strings.Contains(lower, "distribution port"): // "distribution port" is in the error text of Erlang
		return fmt.Errorf("%s on port %d: %w", p.path, p.port, errPortTaken)
	case hasExited:
		return fmt.Errorf("%s ended at its start; its log ends:\n%s", p.path, lastLines(log, 30))
	}
	return fmt.Errorf("%s does not answer after %s (%w); its log ends:\n%s", p.path, startLimit, probeErr, lastLines(log, 30))
}

func (p *program) addr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addrLocked()
}

func (p *program) addrLocked() string { return localAddr(p.port) }

func (p *program) logPath() string { return filepath.Join(p.dir, "log") }

func (p *program) errorLog() string {
	log, err := os.ReadFile(p.logPath())
	if err != nil {
		return err.Error()
	}
	return string(log)
}

func (p *program) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endLocked((*process).kill)
}

func (p *program) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopLocked()
}

func (p *program) stopLocked() error {
	return p.endLocked(func(child *process) error { return child.stop(stopGrace) })
}

func (p *program) endLocked(end func(*process) error) error {
	if p.process == nil {
		return nil
	}
	if err := end(p.process); err != nil {
		return err
	}
	p.process = nil
	return nil
}

// If another process has taken the port since, restart waits for the port.
func (p *program) restart() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.stopLocked(); err != nil {
		return err
	}
	var err error
	waitUntil(startLimit, func() bool {
		err = p.startLocked()
		return !errors.Is(err, errPortTaken)
	})
	return err
}

func (p *program) pause() error { return p.withProcess((*process).pause) }

func (p *program) resume() error { return p.withProcess((*process).resume) }

func (p *program) withProcess(action func(*process) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return errors.New("the server does not run")
	}
	return action(p.process)
}

// discard kills the server, because an orderly stop takes MySQL more than a second.
func (p *program) discard() {
	_ = p.kill()
	_ = os.RemoveAll(p.dir)
}

var errNotInstalled = errors.New("not installed")

// findProgram also looks in directories that are not in an ordinary user's PATH.
func findProgram(names ...string) (string, error) {
	for _, name := range names {
		for _, candidate := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name, "/usr/libexec/" + name} {
			if path, err := exec.LookPath(candidate); err == nil {
				return filepath.Abs(path)
			}
		}
	}
	return "", fmt.Errorf("%s: %w", strings.Join(names, ", "), errNotInstalled)
}

var versions sync.Map // results of versionOf by path

// The result is cached, because one call takes half as long as a start of Redis.
func versionOf(path string, flags ...string) (string, error) {
	if known, isKnown := versions.Load(path); isKnown {
		return known.(string), nil
	}
	output, err := exec.Command(path, flags...).Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	version := strings.TrimSpace(string(output))
	versions.Store(path, version)
	return version, nil
}
