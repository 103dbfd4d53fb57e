package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// workEnv holds a worker's share as JSON. Seeds are lived in processes of their own, with one processor each and
// without the garbage collector, so that nothing but the seed decides who comes first.
const workEnv = "COMPENSATOR_SIM_SHARE"

// share is what one worker does.
type share struct {
	From  uint64
	Step  int64
	Count int
	Walk  bool // report the walk of every seed
	Log   bool // and print the engine's log
}

// lifeReport is what a worker says of one seed, as a line of JSON.
type lifeReport struct {
	Seed    uint64
	Hash    uint64
	Steps   int
	Verdict string `json:",omitempty"`
	Walk    string `json:",omitempty"`
	Tally   tally
}

// walkShown is how much of the walk of a failing seed is printed.
const walkShown = 60

func (l *lifeReport) report(t *testing.T) {
	t.Helper()
	if l.Walk != "" {
		t.Logf("seed %d, %d steps, walk %x:\n%s", l.Seed, l.Steps, l.Hash, l.Walk)
	}
	if l.Verdict != "" {
		t.Errorf("seed %d: %s\nreplay: go test ./proof/sim -run 'TestSeed$' -seed=%d -v", l.Seed, l.Verdict, l.Seed)
	}
}

// TestWorker is the worker: it lives its share.
func TestWorker(t *testing.T) {
	asked := os.Getenv(workEnv)
	if asked == "" {
		return // only a process started by startWorker has anything to do here
	}
	var s share
	if err := json.Unmarshal([]byte(asked), &s); err != nil {
		t.Fatal(err)
	}
	var logger *slog.Logger
	if s.Log {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	debug.SetGCPercent(-1)
	out := bufio.NewWriter(os.NewFile(3, "reports"))
	defer out.Flush()
	for i := range s.Count {
		seed := uint64(int64(s.From) + int64(i)*s.Step)
		_ = json.NewEncoder(out).Encode(lifeReport{Seed: seed, Verdict: "did not end"})
		_ = out.Flush() // should this one end the process, it is to be named
		if i%seedsPerCollection == 0 {
			collectWithDeepStacks()
		}
		w := live(t, seed, logger)
		l := lifeReport{Seed: seed, Hash: w.walk.hash, Steps: w.steps, Verdict: w.oracle.verdict, Tally: w.tally()}
		if l.Verdict != "" {
			l.Walk = w.walk.until(w.oracle.at, walkShown)
		}
		if s.Walk {
			l.Walk = w.walk.until(len(w.walk.list), len(w.walk.list))
		}
		_ = json.NewEncoder(out).Encode(l)
	}
}

// seedsPerCollection is how many seeds are lived between two garbage collections.
const seedsPerCollection = 20

// stackInUse is how much stack most goroutines of the engine come to use, in bytes.
const stackInUse = 13 << 10

// collectWithDeepStacks collects garbage while more goroutines than there are otherwise use as much stack as the engine's do.
// With adaptivestackstart the runtime gives new goroutines the average: growing their stacks by copying took an eighth of a seed.
func collectWithDeepStacks() {
	var deep, ended sync.WaitGroup
	release := make(chan struct{})
	for range 100 {
		deep.Add(1)
		ended.Go(func() {
			callDeep(stackInUse, func() {
				deep.Done()
				<-release
			})
		})
	}
	deep.Wait()
	runtime.GC()
	close(release)
	ended.Wait()
}

// callDeep calls f with about so many bytes of stack in use.
//
//go:noinline
func callDeep(bytes int, f func()) (frame [512]byte) {
	if bytes > len(frame) {
		frame = callDeep(bytes-len(frame), f)
	} else {
		f()
	}
	frame[0]++ // keeps the frame until f has returned
	return frame
}

// worker is a process that lives seeds.
type worker struct {
	t       *testing.T
	command *exec.Cmd
	output  bytes.Buffer // of the process, beside its reports
	lives   chan []*lifeReport
}

func startWorker(t *testing.T, binary string, s share) *worker {
	t.Helper()
	asked, _ := json.Marshal(s)
	reports, writes, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var waitTimeout time.Duration // without end, or as long as this test's own
	if deadline, ok := t.Deadline(); ok {
		waitTimeout = time.Until(deadline)
	}
	p := &worker{t: t, command: exec.Command(binary, "-test.run=^TestWorker$", "-test.timeout="+waitTimeout.String()), lives: make(chan []*lifeReport, 1)}
	p.command.Env = append(os.Environ(), workEnv+"="+string(asked), "GODEBUG=asyncpreemptoff=1,adaptivestackstart=1", "GOMAXPROCS=1")
	p.command.Stdout, p.command.Stderr, p.command.ExtraFiles = &p.output, &p.output, []*os.File{writes}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	_ = writes.Close()
	go func() {
		defer reports.Close()
		p.lives <- readReports(bufio.NewReader(reports))
	}()
	return p
}

// readReports keeps the last report of every seed.
func readReports(from *bufio.Reader) (lives []*lifeReport) {
	decoder := json.NewDecoder(from)
	for {
		l := new(lifeReport)
		if decoder.Decode(l) != nil {
			return lives
		}
		if len(lives) > 0 && lives[len(lives)-1].Seed == l.Seed {
			lives[len(lives)-1] = l
		} else {
			lives = append(lives, l)
		}
	}
}

// wait returns what the process reported. One that crashed has its say, too.
func (p *worker) wait() []*lifeReport {
	p.t.Helper()
	lives := <-p.lives
	if err := p.command.Wait(); err != nil {
		p.t.Errorf("worker: %v\n%s", err, p.output.String())
	} else if testing.Verbose() && p.output.Len() > 100 {
		p.t.Logf("%s", p.output.String())
	}
	return lives
}

// liveAll shares seeds among the processors.
func liveAll(t *testing.T, from uint64, count int) (lives []*lifeReport) {
	t.Helper()
	binary := workerBinary(t)
	workers := min(runtime.NumCPU(), count)
	started := make([]*worker, workers)
	for i := range workers {
		started[i] = startWorker(t, binary, share{From: from + uint64(i), Step: int64(workers), Count: (count - i + workers - 1) / workers})
	}
	for _, p := range started {
		lives = append(lives, p.wait()...)
	}
	if len(lives) != count {
		t.Errorf("got %d lives, want %d", len(lives), count)
	}
	return lives
}

// workerBinary is a binary without the race detector, which randomises the scheduler on purpose and, with bubbles, now
// and then ends the process: golang/go#78156. The engine meets the detector in the tests against real servers.
func workerBinary(t *testing.T) string {
	t.Helper()
	if !raceEnabled {
		return os.Args[0]
	}
	binary, err := builtWorker()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// builtDir holds what builtWorker has built.
var builtDir string

// builtWorker builds the binary once; TestMain removes it.
var builtWorker = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		return "", err
	}
	builtDir = dir
	binary := filepath.Join(dir, "sim.test")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", build.Args, err, out)
	}
	return binary, nil
})

// regressionSeeds reads testdata/seeds.txt: a seed, then what it found.
func regressionSeeds(t *testing.T) (seeds []uint64) {
	t.Helper()
	content, err := os.ReadFile("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		number, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if number == "" || number == "#" {
			continue
		}
		seed, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = append(seeds, seed)
	}
	return seeds
}
