package testservers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// process has no goroutine, so that tests can check for leaked goroutines while their servers run.
type process struct {
	cmd *exec.Cmd

	mu      sync.Mutex // guards isEnded
	isEnded bool       // reaped; the pid may belong to another process already
}

// In its own process group, the child gets no interrupt from the terminal. cmd's streams must be nil or files.
func startProcess(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = childAttributes()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd: cmd}, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// exited reports whether the process has ended, and reaps it.
func (p *process) exited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isEnded {
		return true
	}
	var status syscall.WaitStatus
	pid, err := waitPID(p.pid(), &status, syscall.WNOHANG)
	if pid == p.pid() || errors.Is(err, syscall.ECHILD) {
		p.isEnded = true
		_ = p.cmd.Process.Release()
	}
	return p.isEnded
}

func (p *process) signal(signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isEnded {
		return os.ErrProcessDone
	}
	return p.cmd.Process.Signal(signal)
}

// kill kills the process and returns when it has ended.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if !waitUntil(startLimit, p.exited) {
		return fmt.Errorf("process %d survives SIGKILL", p.pid())
	}
	return nil
}

func (p *process) stop(timeout time.Duration) error {
	_ = p.signal(syscall.SIGCONT) // A frozen process would not receive a SIGTERM.
	_ = p.signal(syscall.SIGTERM)
	if waitUntil(timeout, p.exited) {
		return nil
	}
	return p.kill()
}

// pause returns when every thread of the process is stopped.
func (p *process) pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if !waitUntil(startLimit, p.stopped) {
		return fmt.Errorf("process %d does not stop", p.pid())
	}
	return nil
}

func (p *process) stopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var status syscall.WaitStatus
	pid, _ := waitPID(p.pid(), &status, syscall.WNOHANG|syscall.WUNTRACED)
	if pid != p.pid() {
		return false
	}
	p.isEnded = !status.Stopped() // A process that has ended was killed during the wait.
	return true
}

func (p *process) resume() error { return p.signal(syscall.SIGCONT) }

func waitPID(pid int, status *syscall.WaitStatus, options int) (int, error) {
	for {
		got, err := syscall.Wait4(pid, status, options, nil)
		if !errors.Is(err, syscall.EINTR) {
			return got, err
		}
	}
}
