package compensator_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
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
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

// childEnv names the program a re-executed test binary runs instead of its tests.
const childEnv = "COMPENSATOR_TEST_CHILD"

// program is what a child process runs: a Compensator that stops for good at a point, where it is killed.
type program struct {
	Record bool          // record an entry first, through a plain pool
	Point  string        // where it says "paused" and waits
	Killer string        // business ids of entries whose handler ends the process, separated by commas
	Works  time.Duration // how long the other handlers take

	DSN, Redis, Prefix string
}

// The points of an entry's way at which a child can be killed.
const (
	beforeCommit   = "before the commit"
	afterCommit    = "between commit and announcement"
	afterClaim     = "claimed"
	inHandler      = "in the handler's transaction"
	afterHandler   = "handler returned, outcome not stored"
	afterSettle    = "outcome stored, queue not told"
	afterExhausted = "exhausted, compensation not begun"
	inCompensation = "in the compensation's transaction"
	afterUndone    = "compensated, queue not told"
	afterReconcile = "reconciled"
	untilGo        = "in the handler, until told to go on" // returns nil then
	untilGoToFail  = "in the handler, until told to fail"  // returns Permanent then
)

func runChild() {
	var p program
	must(json.Unmarshal([]byte(os.Getenv(childEnv)), &p))
	orders := make(chan struct{}, 100)
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			orders <- struct{}{}
		}
		os.Exit(0) // the parent is gone, or has had enough
	}()
	child := &childRun{program: p, orders: orders}
	child.run()
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

// childRun is a program under way.
type childRun struct {
	program
	orders <-chan struct{} // a line from the parent each
}

// at stops here for good if this is the point.
func (r *childRun) at(point string) {
	if r.Point == point {
		fmt.Println("paused")
		select {}
	}
}

func (r *childRun) run() {
	db, err := compensatorOn(r.DSN)()
	must(err)
	client := redis.NewClient(&redis.Options{Addr: r.Redis})
	c, err := compensator.New(context.Background(), compensator.Config{
		DB: db, Redis: client, Prefix: r.Prefix, Lease: time.Second, Grace: 200 * time.Millisecond,
		ReconcileInterval: 300 * time.Millisecond, PollInterval: 200 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler), Observer: r.observer(),
	})
	must(err)
	types, err := newLifeTypes(c, r.at, r.handler)
	must(err)
	if r.Record {
		must(r.record(types))
	}
	must(c.Run(context.Background()))
}

func (r *childRun) record(types *lifeTypes) error {
	db, err := plain(r.DSN)()
	if err != nil {
		return err
	}
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	receipt, err := types.pay.Record(context.Background(), tx, order{}, compensator.Options{BusinessID: "the child's"})
	if err != nil {
		return err
	}
	r.at(beforeCommit)
	if err := tx.Commit(); err != nil {
		return err
	}
	r.at(afterCommit)
	receipt.Committed()
	return nil
}

func (r *childRun) observer() compensator.Observer {
	return compensator.Observer{
		AttemptStarted: func(compensator.AttemptEvent) { r.at(afterClaim) },
		AttemptEnded: func(e compensator.AttemptEvent) {
			if e.BusinessType == "ship_order" {
				r.at(afterHandler)
			}
		},
		Settled: func(e compensator.SettledEvent) {
			fmt.Println("settled", e.ID, int(e.State))
			switch e.State {
			case compensator.Succeeded:
				r.at(afterSettle)
			case compensator.Compensating:
				r.at(afterExhausted)
			case compensator.Compensated:
				r.at(afterUndone)
			}
		},
		OutcomeDropped: func(e compensator.SettledEvent) { fmt.Println("dropped", e.ID) },
		Reconciled:     func(compensator.ReconciledEvent) { r.at(afterReconcile) },
	}
}

// handler is what the child's handlers do beside their effect.
func (r *childRun) handler(e *compensator.Entry) error {
	if r.Works > 0 {
		<-time.After(r.Works)
	}
	if r.Killer != "" && slices.Contains(strings.Split(r.Killer, ","), e.BusinessID) {
		os.Exit(killed)
	}
	if r.Point != untilGo && r.Point != untilGoToFail {
		return nil
	}
	fmt.Println("paused")
	<-r.orders
	if r.Point == untilGoToFail {
		return compensator.Permanent(errors.New("stale"))
	}
	return nil
}

// killed is the exit status of a child whose handler has ended it.
const killed = 3

// lifeTypes are the types that parents and children run: one of each kind of handler.
type lifeTypes struct {
	pay   *compensator.Type[order] // transactional
	ship  *compensator.Type[order] // plain
	close *compensator.Type[order] // fails, and is undone in a transaction
	mail  *compensator.Type[order] // in batches
}

func newLifeTypes(c *compensator.Compensator, at func(point string), more func(e *compensator.Entry) error) (*lifeTypes, error) {
	var types lifeTypes
	var errs [4]error
	effect := func(ctx context.Context, tx *compensator.ScopedTx, what string, e *compensator.Entry, point string) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", what+e.ID.String())
		at(point)
		return err
	}
	types.pay, errs[0] = compensator.HandleTx(c, "pay_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ order) error {
		return errors.Join(effect(ctx, tx, "paid ", e, inHandler), more(e))
	}, compensator.TypeConfig{})
	types.ship, errs[1] = compensator.Handle(c, "ship_order", func(_ context.Context, e *compensator.Entry, _ order) error { return more(e) }, compensator.TypeConfig{})
	types.close, errs[2] = compensator.Handle(c, "close_order", func(context.Context, *compensator.Entry, order) error { return errSoldOut }, compensator.TypeConfig{
		MaxProcessCount: 1,
		CompensateTx: func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error {
			return effect(ctx, tx, "undone ", e, inCompensation)
		},
	})
	types.mail, errs[3] = compensator.HandleBatch(c, "send_mail", func(_ context.Context, items []compensator.Item[order]) []error {
		verdicts := make([]error, len(items))
		for i, item := range items {
			verdicts[i] = more(item.Entry)
		}
		return verdicts
	}, compensator.TypeConfig{})
	return &types, errors.Join(errs[:]...)
}

// childProcess is a child under way, as its parent sees it.
type childProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin interface{ Write([]byte) (int, error) }
	done  chan struct{} // closed when it has ended

	mu    sync.Mutex // guards the fields below
	said  []string
	wrong bytes.Buffer
}

// Write takes what the child says on stderr.
func (p *childProcess) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wrong.Write(b)
}

// startChild starts a child on the world's servers. It ends with the test at the latest.
func (w *world) startChild(p program) *childProcess {
	w.t.Helper()
	p.Redis, p.Prefix = w.Redis.Options().Addr, w.Name
	if p.DSN == "" {
		p.DSN = w.DSN
	}
	text, err := json.Marshal(p)
	require.NoError(w.t, err)
	binary, err := os.Executable()
	require.NoError(w.t, err)
	child := &childProcess{t: w.t, cmd: exec.Command(binary), done: make(chan struct{})}
	child.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	child.cmd.Stderr = child
	stdin, err := child.cmd.StdinPipe()
	require.NoError(w.t, err)
	stdout, err := child.cmd.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, child.cmd.Start())
	child.stdin = stdin
	go func() {
		defer close(child.done)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			child.mu.Lock()
			child.said = append(child.said, lines.Text())
			child.mu.Unlock()
		}
		_ = child.cmd.Wait()
	}()
	w.t.Cleanup(child.kill)
	return child
}

// await waits until the child has said something.
func (p *childProcess) await(line string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.hasSaid(line) }, patience, 5*time.Millisecond, "the child says %q", line)
}

func (p *childProcess) hasSaid(line string) bool { return p.times(line) > 0 }

// times is how often the child has said something.
func (p *childProcess) times(line string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wrong.Len() > 0 {
		p.t.Log(p.wrong.String())
		p.wrong.Reset()
	}
	times := 0
	for _, said := range p.said {
		if said == line {
			times++
		}
	}
	return times
}

// kill ends the child as a power cut would.
func (p *childProcess) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *childProcess) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// goOn lets a child go on that waits for it.
func (p *childProcess) goOn() {
	p.t.Helper()
	_, err := p.stdin.Write([]byte("go\n"))
	require.NoError(p.t, err)
}

// lifeInstance makes an instance of the parent's that runs the children's types.
func (w *world) lifeInstance(db *sql.DB) (*compensator.Compensator, *lifeTypes) {
	w.t.Helper()
	cfg := w.quick()
	cfg.DB, cfg.Lease = db, time.Second
	c := w.new(cfg)
	types, err := newLifeTypes(c, func(string) {}, func(*compensator.Entry) error { return nil })
	require.NoError(w.t, err)
	return c, types
}
