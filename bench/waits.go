package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/bench/internal/child"
)

type waitPlan struct {
	Redis bool          `json:"redis"`
	Apart bool          `json:"apart"`    // whether another process runs the handler
	Takes time.Duration `json:"takes_ns"` // longest duration of the handler; each call draws its own
	Calls int           `json:"calls"`    // entries that are waited for

	Callers int `json:"callers"` // callers at once. Each records the next entry as soon as it has its answer
}

type waitRun struct {
	waitPlan
	FromRecord lags `json:"from_record"` // from the call of Record to the answer
	FromEnd    lags `json:"from_end"`    // from the return of the handler to the answer
}

const waitHead = "| handler | callers | handler runs in | Redis | entries | record → answer, p50 ms | p99 ms | handler's end → answer, p50 ms | p99 ms | goal p50 |\n" +
	"| --- | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"

func (r waitRun) String() string {
	place, redis, handler := "the same process", "no", "returns at once"
	if r.Apart {
		place = "another process"
	}
	if r.Redis {
		redis = "yes"
	}
	if r.Takes > 0 {
		handler = fmt.Sprintf("up to %v", r.Takes)
	}
	verdict := "ok"
	if r.FromEnd.P50 > r.goal() {
		verdict = "short"
	}
	return fmt.Sprintf("| %s | %d | %s | %s | %d | %s | %s | %s | %s | ≤ %s %s |", handler, r.Callers, place, redis, r.Calls, ms(r.FromRecord.P50), ms(r.FromRecord.P99),
		ms(r.FromEnd.P50), ms(r.FromEnd.P99), ms(r.goal()), verdict)
}

func (p waitPlan) goal() time.Duration {
	if p.Redis {
		return 5 * time.Millisecond
	}
	return 60 * time.Millisecond
}

// The result of an entry is the time at which its handler returned, by the machine's clock.
func (a *arena) waits(plan waitPlan) waitRun {
	a.Helper()
	a.empty()
	w := waitWorker{DSN: a.dsn, Takes: plan.Takes}
	if plan.Redis {
		w.Redis = a.redis.Addr()
	}
	c, t, err := w.open(!plan.Apart)
	a.must(err)
	var stop func()
	if plan.Apart {
		stop = a.startWaitWorker(w)
	} else {
		ctx, cancel := context.WithCancel(a.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		stop = func() { cancel(); a.must(<-done) }
	}
	time.Sleep(300 * time.Millisecond) // Wait until the scanners have made their first claims.
	var mu sync.Mutex                  // guards the two lists
	var fromRecord, fromEnd []time.Duration
	_, err = share(plan.Calls, plan.Callers, func(int) error {
		began := time.Now()
		var receipt *compensator.Receipt
		err := c.InTx(a.Context(), func(ctx context.Context, tx *compensator.ScopedTx) (err error) {
			receipt, err = t.Record(ctx, tx, raw(content), compensator.Options{})
			return err
		})
		if err != nil {
			return err
		}
		_, ended, err := t.Wait(a.Context(), receipt.ID())
		if err != nil {
			return err
		}
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		fromRecord = append(fromRecord, now.Sub(began))
		fromEnd = append(fromEnd, now.Sub(time.Unix(0, int64(binary.BigEndian.Uint64(ended)))))
		return nil
	})
	a.must(err)
	stop()
	a.must(c.Close())
	return waitRun{plan, lagsOf("record → answer", 0, fromRecord), lagsOf("end → answer", 0, fromEnd)}
}

// crowdOfWaits returns how many SELECT statements the server receives in two seconds, and the mean number in 50 ms.
func (a *arena) crowdOfWaits(callers int) (statements int, aRound float64) {
	a.Helper()
	a.empty()
	c, t, err := waitWorker{DSN: a.dsn}.open(false)
	a.must(err)
	receipts := make([]*compensator.Receipt, callers)
	for i := range receipts {
		a.must(c.InTx(a.Context(), func(ctx context.Context, tx *compensator.ScopedTx) (err error) {
			receipts[i], err = t.Record(ctx, tx, raw(content), compensator.Options{Delay: time.Hour})
			return err
		}))
	}
	ctx, cancel := context.WithTimeout(a.Context(), 3500*time.Millisecond) // Reads become rarer after 4 s.
	defer cancel()
	var waiting sync.WaitGroup
	for _, receipt := range receipts {
		waiting.Go(func() {
			if _, _, err := t.Wait(ctx, receipt.ID()); !errors.Is(err, context.DeadlineExceeded) {
				a.Errorf("a wait for an entry that is not due returned %v", err)
			}
		})
	}
	time.Sleep(500 * time.Millisecond) // Let all calls begin.
	const window = 2 * time.Second
	before := a.status("Com_select")
	time.Sleep(window)
	statements = int(a.status("Com_select") - before)
	waiting.Wait()
	a.must(c.Close())
	return statements, float64(statements) / (window.Seconds() / 0.05)
}

// waitEnv names the environment variable that carries the waitWorker as JSON to a re-executed test binary.
const waitEnv = "BENCH_WAIT_WORKER"

type waitWorker struct {
	DSN, Redis string
	Takes      time.Duration
}

func (w waitWorker) open(runs bool) (*compensator.Compensator, *compensator.ResultType[raw, raw], error) {
	db, err := openPool(w.DSN, producers+4, true)
	if err != nil {
		return nil, nil, err
	}
	cfg := compensator.Config{DB: db, Logger: slog.New(slog.DiscardHandler)}
	if w.Redis != "" {
		cfg.Redis = newClient(w.Redis)
	}
	c, err := compensator.New(context.Background(), cfg)
	if err != nil {
		return nil, nil, err
	}
	typed := compensator.TypeConfig{Codec: asIs{}}
	var t *compensator.ResultType[raw, raw]
	if runs {
		t, err = compensator.HandleResult(context.Background(), c, benchType, w.handle, &compensator.HandlerConfig[raw]{TypeConfig: typed})
	} else {
		t, err = compensator.DeclareResult[raw, raw](context.Background(), c, benchType, &typed)
	}
	return c, t, err
}

func (w waitWorker) handle(context.Context, *compensator.Entry, raw) (raw, error) {
	if w.Takes > 0 {
		time.Sleep(rand.N(w.Takes))
	}
	return binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixNano())), nil
}

func (a *arena) startWaitWorker(w waitWorker) (stop func()) {
	a.Helper()
	text, err := json.Marshal(w)
	a.must(err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), waitEnv+"="+string(text))
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, child.Attributes(nil, syscall.SIGKILL)
	ready, err := cmd.StdoutPipe()
	a.must(err)
	a.must(cmd.Start())
	stop = sync.OnceFunc(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	a.Cleanup(stop)
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		a.Fatalf("the process that runs the handlers did not start: %v", err)
	}
	return stop
}

func runWaitWorker() {
	text := os.Getenv(waitEnv)
	if text == "" {
		return
	}
	var w waitWorker
	err := json.Unmarshal([]byte(text), &w)
	if err == nil {
		var c *compensator.Compensator
		if c, _, err = w.open(true); err == nil {
			fmt.Print("r")
			err = c.Run(context.Background())
		}
	}
	fmt.Fprintln(os.Stderr, "bench wait worker:", err)
	os.Exit(2)
}
