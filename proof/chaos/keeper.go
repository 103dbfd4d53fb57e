package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

type app struct {
	tb      testing.TB
	name    string
	cfg     appConfig
	proxies *proxies
	log     string
	kept    chan struct{} // closed when no more processes will be started

	mu       sync.Mutex // guards the fields below it
	process  *exec.Cmd
	started  int
	pids     map[int]string
	orders   io.WriteCloser
	ready    chan struct{} // closed when the current process is ready
	unloaded bool
	idle     bool
	stopping bool
}

const appEnv = "CHAOS_APP"

func startApp(tb testing.TB, cfg appConfig, proxies *proxies) *app {
	a := &app{tb: tb, name: cfg.Name, cfg: cfg, proxies: proxies, log: filepath.Join(cfg.Dir, cfg.Name+".log"), kept: make(chan struct{}), ready: make(chan struct{}), pids: make(map[int]string)}
	go a.keepRunning()
	tb.Cleanup(func() {
		a.setStopping()
		a.kill()
		<-a.kept
	})
	return a
}

func (a *app) keepRunning() {
	defer close(a.kept)
	for number := 1; ; number++ {
		err := a.runProcess(number)
		if a.isStopping() {
			if err != nil && !killed(err) {
				a.tb.Errorf("%s did not end normally: %v\n%s", a.name, err, a.logTail())
			}
			return
		}
		if !killed(err) {
			a.tb.Errorf("%s ended without being stopped: %v\n%s", a.name, err, a.logTail())
			return
		}
		wait(context.Background(), 200*time.Millisecond) // A real restart takes time, too.
	}
}

// runProcess starts one process and waits for its end. number counts the processes of this app.
func (a *app) runProcess(number int) error {
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(a.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cfg := a.config(number)
	text, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	cmd := exec.Command(binary)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, preload+"=") }), appEnv+"="+string(text))
	cmd.Stderr, cmd.SysProcAttr = log, childAttributes()
	orders, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	news, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	a.set(cmd, orders)
	lines := bufio.NewScanner(news)
	for lines.Scan() {
		a.handle(lines.Text())
	}
	err = cmd.Wait()
	a.set(nil, nil)
	return err
}

func (a *app) config(number int) appConfig {
	a.mu.Lock()
	defer a.mu.Unlock()
	cfg := a.cfg
	cfg.Seed = cfg.Seed<<16 + uint64(number)
	cfg.Process = processName(cfg.Name, number)
	return cfg
}

func (a *app) set(cmd *exec.Cmd, orders io.WriteCloser) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.process, a.orders, a.unloaded = cmd, orders, false
	if cmd != nil {
		a.started++
		a.pids[cmd.Process.Pid] = processName(a.name, a.started)
	}
	if cmd == nil {
		if isClosed(a.ready) {
			a.ready = make(chan struct{})
		}
	} else if a.stopping {
		_ = cmd.Process.Kill()
	}
	if a.idle {
		a.sendStopLoad()
	}
}

func (a *app) latest() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return processName(a.name, a.started)
}

func (a *app) nameOf(pid int) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pids[pid]
}

func processName(app string, number int) string { return fmt.Sprint(app, "-", number) }

func (a *app) handle(news string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch news {
	case atWork:
		close(a.ready)
	case noLoad:
		a.unloaded = true
	}
}

func (a *app) isUnloaded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unloaded
}

// If the current process dies, await waits for its successor.
func (a *app) await(ctx context.Context) error {
	timer := time.NewTimer(waitTimeout)
	defer timer.Stop()
	a.mu.Lock()
	ready := a.ready
	a.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-a.kept:
		return errors.New(a.name + " has ended and will not be started again")
	case <-timer.C:
		return errors.New(a.name + " did not become ready in time\n" + a.logTail())
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *app) kill() {
	a.signal(syscall.SIGKILL)
	for deadline := time.Now().Add(waitTimeout); a.pid() != 0 && time.Now().Before(deadline); {
		wait(context.Background(), time.Millisecond)
	}
}

func (a *app) signal(s syscall.Signal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.process != nil {
		_ = a.process.Process.Signal(s) // Ignore the error, because the process may have ended already.
	}
}

func (a *app) pid() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.process == nil {
		return 0
	}
	return a.process.Process.Pid
}

func (a *app) stopLoad() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cfg.Rate, a.cfg.People, a.idle = 0, 0, true
	a.sendStopLoad()
}

// The caller holds mu.
func (a *app) sendStopLoad() {
	if a.orders != nil {
		_, _ = fmt.Fprintln(a.orders, stopLoad)
	}
}

func (a *app) stop() {
	a.setStopping()
	a.mu.Lock()
	if a.orders != nil {
		_, _ = fmt.Fprintln(a.orders, stopAll)
	}
	a.mu.Unlock()
	timer := time.NewTimer(waitTimeout)
	defer timer.Stop()
	select {
	case <-a.kept:
	case <-timer.C:
		a.tb.Errorf("%s did not end in time after stop\n%s", a.name, a.logTail())
		a.signal(syscall.SIGQUIT)
		a.kill()
	}
}

func (a *app) setStopping() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopping = true
}

func (a *app) isStopping() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stopping
}

func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

func (a *app) checkLog() {
	text, err := os.ReadFile(a.log)
	if err != nil {
		a.tb.Error(err)
	}
	for _, never := range []string{"DATA RACE", "panic: ", "fatal error: ", "observer panicked"} {
		if i := strings.Index(string(text), never); i >= 0 {
			a.tb.Errorf("%s logged a forbidden text in %s: %.3000s", a.name, a.log, text[max(0, i-200):])
		}
	}
}

func (a *app) logTail() string {
	text, _ := os.ReadFile(a.log)
	return string(text[max(0, len(text)-3000):])
}
