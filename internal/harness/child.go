package harness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
)

// Program configures a child process. The child runs a Compensator and stops at Point, where the test kills the
// process.
type Program struct {
	Record     bool
	Point      string // point at which the child prints "paused" and waits
	Killer     string // business ids of entries whose handler ends the child, separated by commas
	Works      time.Duration
	Concurrent int // Limit.Concurrent of the type "ship_order" (0: no limit)

	Every time.Duration // interval of the periodic type "tick" (0: not registered)

	DSN, Redis, Prefix string
}

const (
	BeforeCommit   = "before the commit"
	AfterCommit    = "between commit and enqueue"
	AfterClaim     = "claimed"
	InHandler      = "in the handler's transaction"
	AfterHandler   = "handler returned, outcome not stored"
	AfterSettle    = "outcome stored, queue not told"
	AfterExhausted = "exhausted, compensation not begun"
	InCompensation = "in the compensation's transaction"
	AfterUndone    = "compensated, queue not told"
	AfterReconcile = "reconciled"
	UntilGo        = "in the handler, until told to go on"
	UntilGoToFail  = "in the handler, until told to fail"
)

func runChild() {
	var p Program
	exitOnError(json.Unmarshal([]byte(os.Getenv(childEnv)), &p))
	orders := make(chan struct{}, 100)
	go func() {
		scanner := bufio.NewScanner(os.Stdin)
		for scanner.Scan() {
			orders <- struct{}{}
		}
		os.Exit(0)
	}()
	child := &childProcess{Program: p, orders: orders}
	child.run()
}

func exitOnError(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

type childProcess struct {
	Program
	orders <-chan struct{}
}

func (r *childProcess) pauseAt(point string) {
	if r.Point == point {
		fmt.Println("paused")
		select {}
	}
}

func (r *childProcess) run() {
	db, err := WatchedPool(r.DSN)()
	exitOnError(err)
	client := redis.NewClient(&redis.Options{Addr: r.Redis})
	c, err := compensator.New(context.Background(), compensator.Config{
		DB: db, Redis: client, Prefix: r.Prefix, Lease: time.Second, Grace: 200 * time.Millisecond,
		ReconcileInterval: 300 * time.Millisecond, PollInterval: 200 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler), Observer: r.observer(),
	})
	exitOnError(err)
	types, err := newLifeTypes(c, r.Concurrent, r.pauseAt, r.handler)
	exitOnError(err)
	if r.Every > 0 {
		exitOnError(HandleTick(c, r.Every))
	}
	if r.Record {
		exitOnError(r.record(types))
	}
	exitOnError(c.Run(context.Background()))
}

func (r *childProcess) record(types *LifeTypes) error {
	db, err := PlainPool(r.DSN)()
	if err != nil {
		return err
	}
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	receipt, err := types.Pay.Record(context.Background(), tx, Order{}, compensator.Options{BusinessID: "the child's"})
	if err != nil {
		return err
	}
	r.pauseAt(BeforeCommit)
	if err := tx.Commit(); err != nil {
		return err
	}
	r.pauseAt(AfterCommit)
	receipt.Committed()
	return nil
}

func (r *childProcess) observer() observe.Observer {
	return observe.Observer{
		AttemptStarted: func(observe.AttemptEvent) { r.pauseAt(AfterClaim) },
		AttemptEnded: func(e observe.AttemptEvent) {
			if e.BusinessType == "ship_order" {
				r.pauseAt(AfterHandler)
			}
		},
		Settled: func(e observe.SettledEvent) {
			fmt.Println("settled", e.ID, int(e.State))
			switch e.State {
			case compensator.Succeeded:
				r.pauseAt(AfterSettle)
			case compensator.Compensating:
				r.pauseAt(AfterExhausted)
			case compensator.Compensated:
				r.pauseAt(AfterUndone)
			}
		},
		OutcomeDropped: func(e observe.SettledEvent) { fmt.Println("dropped", e.ID) },
		Reconciled:     func(observe.ReconciledEvent) { r.pauseAt(AfterReconcile) },
	}
}

func (r *childProcess) handler(e *compensator.Entry) error {
	if r.Works > 0 {
		<-time.After(r.Works)
	}
	if r.Killer != "" && slices.Contains(strings.Split(r.Killer, ","), e.BusinessID) {
		os.Exit(exitKilled)
	}
	if r.Point != UntilGo && r.Point != UntilGoToFail {
		return nil
	}
	fmt.Println("paused")
	<-r.orders
	if r.Point == UntilGoToFail {
		return compensator.Permanent(errors.New("stale"))
	}
	return nil
}

const exitKilled = 3

type Child struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  interface{ Write([]byte) (int, error) }
	exited chan struct{} // closed when the process has ended

	mu    sync.Mutex // guards the fields below
	lines []string
	wrong bytes.Buffer
}

func (p *Child) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wrong.Write(b)
}

// StartChild starts a child process on the world's servers. The end of the test kills the child if it still runs.
func (w *World) StartChild(p Program) *Child {
	w.T.Helper()
	p.Redis, p.Prefix = w.Redis.Options().Addr, w.Name
	if p.DSN == "" {
		p.DSN = w.DSN
	}
	text, err := json.Marshal(p)
	require.NoError(w.T, err)
	return w.StartProcess(childEnv + "=" + string(text))
}

// StartProcess starts this test program again with an environment variable, NAME=value, that TestMain knows. The end of
// the test kills the process if it still runs.
func (w *World) StartProcess(env string) *Child {
	w.T.Helper()
	binary, err := os.Executable()
	require.NoError(w.T, err)
	child := &Child{t: w.T, cmd: exec.Command(binary), exited: make(chan struct{})}
	child.cmd.Env = append(os.Environ(), env)
	child.cmd.Stderr = child
	stdin, err := child.cmd.StdinPipe()
	require.NoError(w.T, err)
	stdout, err := child.cmd.StdoutPipe()
	require.NoError(w.T, err)
	require.NoError(w.T, child.cmd.Start())
	child.stdin = stdin
	go func() {
		defer close(child.exited)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			child.mu.Lock()
			child.lines = append(child.lines, lines.Text())
			child.mu.Unlock()
		}
		_ = child.cmd.Wait()
	}()
	w.T.Cleanup(child.Kill)
	return child
}

func (p *Child) Await(line string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.hasSaid(line) }, Timeout, 5*time.Millisecond, "the child says %q", line)
}

func (p *Child) hasSaid(line string) bool { return p.Times(line) > 0 }

func (p *Child) Times(line string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wrong.Len() > 0 {
		p.t.Log(p.wrong.String())
		p.wrong.Reset()
	}
	count := 0
	for _, sentLine := range p.lines {
		if sentLine == line {
			count++
		}
	}
	return count
}

func (p *Child) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

func (p *Child) Signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

func (p *Child) Continue() {
	p.t.Helper()
	_, err := p.stdin.Write([]byte("go\n"))
	require.NoError(p.t, err)
}

// Supervise returns the number of crashes once every entry has ended.
func (w *World) Supervise(p Program) (crashes int) {
	w.T.Helper()
	child := w.StartChild(p)
	w.Eventually(func() bool {
		select {
		case <-child.exited:
			assert.Equal(w.T, exitKilled, child.cmd.ProcessState.ExitCode())
			crashes++
			child = w.StartChild(p)
		default:
		}
		return w.Count("common_process_log WHERE state IN (0,-1,-3)") == 0
	}, "every entry ends")
	child.Kill()
	return crashes
}
