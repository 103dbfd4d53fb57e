package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/bench/internal/child"
)

// featureWork is work that two sides do in turn. One side has features that the other side lacks: two builds of this
// package, or the library with Operations and without Operations. The work uses none of these features.
type featureWork struct {
	name    string
	entries int  // entries of one round
	backlog bool // whether the entries are recorded before the round
}

// In each pair, each of the two sides does this number of short rounds. The sides take turns after every round, so most
// of the noise of a shared machine affects both equally.
const featureRounds = 8

type roundResult struct {
	Took, CPU     float64 // seconds; CPU: processor time of the process, without the servers
	Allocs, Bytes uint64

	statements, redis float64 // counted by the servers; includes the start and the end of the library
}

// Each ratio is the figure of the side with all features, divided by the figure of the side that lacks some.
type featureRow struct {
	Work    string  `json:"work"`
	Entries int     `json:"entries"` // of each side in a pair
	Pairs   int     `json:"pairs"`
	Seconds spread  `json:"seconds"` // of each side in a pair
	Rate    spread  `json:"rate_ratio"`
	CPU     spread  `json:"cpu_ratio"`
	With    cost    `json:"with"`
	Without cost    `json:"without"`
	CPUs    [2]cpus `json:"cpu"`
}

// cpus is the processor time of an entry in µs.
type cpus struct {
	Side string `json:"side"`
	spread
}

const featureHead = "| work | s a pair and build | entries/s, with ÷ without | processor time, with ÷ without | µs an entry with / without | statements | Redis calls | allocations | bytes |\n" +
	"| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"

func (r featureRow) String() string {
	ratio := func(s spread) string { return fmt.Sprintf("%.3f (%.3f–%.3f)", s.Median, s.Min, s.Max) }
	both := func(format string, with, without float64) string {
		return fmt.Sprintf(format+" / "+format, with, without)
	}
	return fmt.Sprintf("| %s | %.1f | %s | %s | %s | %s | %s | %s | %s |", r.Work, r.Seconds.Median, ratio(r.Rate), ratio(r.CPU),
		both("%.1f", r.CPUs[0].Median, r.CPUs[1].Median), both("%.2f", r.With.Statements, r.Without.Statements), both("%.3f", r.With.Redis, r.Without.Redis),
		both("%.1f", r.With.Allocs, r.Without.Allocs), both("%.0f", r.With.Bytes, r.Without.Bytes))
}

func (a *arena) runFeaturePairs(w featureWork, with, without *sideProcess, pairs int) featureRow {
	a.Helper()
	var seconds, rates, processor, cpuWith, cpuWithout []float64
	var all [2]roundResult
	for pair := range pairs {
		var sums [2]roundResult
		for round := range featureRounds {
			for place := range 2 {
				side := (place + round + pair) % 2
				a.empty()
				if w.backlog {
					a.backlog(w.entries)
				}
				before := a.serverWork()
				r := []*sideProcess{with, without}[side].round(w)
				after := a.serverWork()
				r.statements, r.redis = after.statements-before.statements, after.redis-before.redis
				sums[side].add(r)
			}
		}
		for side := range sums {
			all[side].add(sums[side])
			seconds = append(seconds, sums[side].Took)
		}
		n := float64(w.entries * featureRounds)
		rates = append(rates, sums[1].Took/sums[0].Took)
		processor = append(processor, sums[0].CPU/sums[1].CPU)
		cpuWith = append(cpuWith, sums[0].CPU*1e6/n)
		cpuWithout = append(cpuWithout, sums[1].CPU*1e6/n)
		a.Logf("%-44s pair %d: rate %.3f, processor time %.3f", w.name, pair+1, rates[pair], processor[pair])
	}
	n := float64(w.entries * featureRounds * pairs)
	return featureRow{Work: w.name, Entries: w.entries * featureRounds, Pairs: pairs, Seconds: spreadOf(seconds), Rate: spreadOf(rates), CPU: spreadOf(processor),
		With: all[0].cost(n), Without: all[1].cost(n), CPUs: [2]cpus{{"with", spreadOf(cpuWith)}, {"without", spreadOf(cpuWithout)}}}
}

func (r *roundResult) add(o roundResult) {
	r.Took += o.Took
	r.CPU += o.CPU
	r.Allocs += o.Allocs
	r.Bytes += o.Bytes
	r.statements += o.statements
	r.redis += o.redis
}

func (r *roundResult) cost(entries float64) cost {
	return cost{Statements: r.statements / entries, Redis: r.redis / entries, Allocs: float64(r.Allocs) / entries, Bytes: float64(r.Bytes) / entries}
}

// sideEnv names the environment variable that carries the sideWorker as JSON to a test binary.
const sideEnv = "BENCH_SIDE_WORKER"

// For each line of its input, which names a work and a number of entries, a sideWorker does one round and writes a
// roundResult.
type sideWorker struct {
	DSN, Redis string
	Operates   bool // whether the library runs with everything of Operations
}

type sideProcess struct {
	a       *arena
	in      io.Writer
	results *json.Decoder
}

func (a *arena) startSide(binary string, operates bool) *sideProcess {
	a.Helper()
	text, err := json.Marshal(sideWorker{a.dsn, a.redis.Addr(), operates})
	a.must(err)
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), sideEnv+"="+string(text))
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, child.Attributes(nil, syscall.SIGKILL)
	in, err := cmd.StdinPipe()
	a.must(err)
	results, err := cmd.StdoutPipe()
	a.must(err)
	a.must(cmd.Start())
	a.Cleanup(func() { _, _ = in.Close(), cmd.Wait() })
	return &sideProcess{a, in, json.NewDecoder(results)}
}

func (p *sideProcess) round(w featureWork) (r roundResult) {
	p.a.Helper()
	_, err := fmt.Fprintln(p.in, w.entries, w.name)
	p.a.must(err)
	p.a.must(p.results.Decode(&r))
	return r
}

func runSideWorker() {
	text := os.Getenv(sideEnv)
	if text == "" {
		return
	}
	var w sideWorker
	err := json.Unmarshal([]byte(text), &w)
	lines, results := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for err == nil && lines.Scan() {
		var n int
		var name string
		var r roundResult
		if _, err = fmt.Sscan(lines.Text(), &n, &name); err == nil {
			if r, err = w.round(name, n); err == nil {
				err = results.Encode(r)
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench side worker:", err)
		os.Exit(2)
	}
	os.Exit(0)
}

const (
	workRecord    = "record"
	workSustained = "sustained"
	workDrain     = "drain"
)

// round measures from the start of the work until the last outcome is durable.
func (w sideWorker) round(name string, n int) (r roundResult, err error) {
	db, err := openPool(w.DSN, producers+4, true)
	if err != nil {
		return r, err
	}
	defer db.Close()
	client := newClient(w.Redis)
	defer client.Close()
	handler, opts := nothing, compensator.Options{}
	if name == workRecord {
		handler, opts.Delay = nil, time.Second
	}
	var settings *compensator.Operations
	if w.Operates {
		settings = everyOperation()
	}
	l, err := openLibrary(db, client, compensator.HandlerConfig[raw]{Concurrency: 1000}, settings, handler)
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	runtime.GC() // Each round begins with the same heap.
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began, cpu := time.Now(), processCPU()
	var running sync.WaitGroup
	var runErr error
	if handler != nil {
		running.Go(func() { runErr = l.Run(ctx) })
	}
	if name != workDrain {
		if _, err = share(n, producers, func(int) error {
			_, err := l.record(ctx, 1, opts)
			return err
		}); err != nil {
			return r, err
		}
	}
	for handler != nil && l.settled.Load() < int64(n) {
		if time.Since(began) > waitLimit {
			return r, fmt.Errorf("%s: %d of %d entries ended within %v", name, l.settled.Load(), n, waitLimit)
		}
		time.Sleep(200 * time.Microsecond)
	}
	r.Took, r.CPU = time.Since(began).Seconds(), processCPU()-cpu
	runtime.ReadMemStats(&after)
	r.Allocs, r.Bytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	cancel()
	running.Wait()
	if runErr != nil {
		return r, runErr
	}
	return r, l.Close()
}
