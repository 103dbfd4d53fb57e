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

// A worker has one processor and collects no garbage during a seed, so that only the seed decides the order of
// goroutines.
const workEnv = "COMPENSATOR_SIM_SHARE"

type share struct {
	From  uint64
	Step  int64
	Count int
	Walk  bool
	Log   bool
}

type seedReport struct {
	Seed    uint64
	Hash    uint64
	Steps   int
	Verdict string `json:",omitempty"`
	Walk    string `json:",omitempty"`
	Tally   tally
}

const walkShown = 60

func (l *seedReport) report(t *testing.T) {
	t.Helper()
	if l.Walk != "" {
		t.Logf("seed %d, %d steps, walk %x:\n%s", l.Seed, l.Steps, l.Hash, l.Walk)
	}
	if l.Verdict != "" {
		t.Errorf("seed %d: %s\nreplay: go test ./proof/sim -run 'TestSeed$' -seed=%d -v", l.Seed, l.Verdict, l.Seed)
	}
}

func TestWorker(t *testing.T) {
	asked := os.Getenv(workEnv)
	if asked == "" {
		return
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
		_ = json.NewEncoder(out).Encode(seedReport{Seed: seed, Verdict: "did not end"})
		_ = out.Flush() // The next seed may end the process.
		if i%seedsPerCollection == 0 {
			collectWithDeepStacks()
		}
		w := runSeed(t, seed, logger)
		l := seedReport{Seed: seed, Hash: w.walk.hash, Steps: w.steps, Verdict: w.oracle.verdict, Tally: w.tally()}
		if l.Verdict != "" {
			l.Walk = w.walk.describeBefore(w.oracle.at, walkShown)
		}
		if s.Walk {
			l.Walk = w.walk.describeBefore(len(w.walk.list), len(w.walk.list))
		}
		_ = json.NewEncoder(out).Encode(l)
	}
}

const seedsPerCollection = 20

const stackInUse = 13 << 10

// collectWithDeepStacks collects garbage while many goroutines use as much stack as the engine's goroutines do. With
// the runtime setting adaptivestackstart, a collection measures the used stacks, and new goroutines start with stacks
// of this size. The stacks of the goroutines in the next simulated runs need not grow, which saves an eighth of the
// time.
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

// callDeep calls f with about the given number of bytes of stack in use.
//
//go:noinline
func callDeep(bytes int, f func()) (frame [512]byte) {
	if bytes > len(frame) {
		frame = callDeep(bytes-len(frame), f)
	} else {
		f()
	}
	frame[0]++ // keeps the frame in use
	return frame
}

type worker struct {
	t       *testing.T
	command *exec.Cmd
	output  bytes.Buffer
	reports chan []*seedReport
}

func startWorker(t *testing.T, binary string, s share) *worker {
	t.Helper()
	asked, _ := json.Marshal(s)
	reports, writes, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var waitTimeout time.Duration
	if deadline, ok := t.Deadline(); ok {
		waitTimeout = time.Until(deadline)
	}
	p := &worker{t: t, command: exec.Command(binary, "-test.run=^TestWorker$", "-test.timeout="+waitTimeout.String()), reports: make(chan []*seedReport, 1)}
	p.command.Env = append(os.Environ(), workEnv+"="+string(asked), "GODEBUG=asyncpreemptoff=1,adaptivestackstart=1", "GOMAXPROCS=1")
	p.command.Stdout, p.command.Stderr, p.command.ExtraFiles = &p.output, &p.output, []*os.File{writes}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	_ = writes.Close()
	go func() {
		defer reports.Close()
		p.reports <- readReports(bufio.NewReader(reports))
	}()
	return p
}

func readReports(from *bufio.Reader) (reports []*seedReport) {
	decoder := json.NewDecoder(from)
	for {
		l := new(seedReport)
		if decoder.Decode(l) != nil {
			return reports
		}
		if len(reports) > 0 && reports[len(reports)-1].Seed == l.Seed {
			reports[len(reports)-1] = l
		} else {
			reports = append(reports, l)
		}
	}
}

// If the process crashed, the last report is about the seed that crashed it.
func (p *worker) wait() []*seedReport {
	p.t.Helper()
	reports := <-p.reports
	if err := p.command.Wait(); err != nil {
		p.t.Errorf("worker: %v\n%s", err, p.output.String())
	} else if testing.Verbose() && p.output.Len() > 100 {
		p.t.Logf("%s", p.output.String())
	}
	return reports
}

func runAll(t *testing.T, from uint64, count int) (reports []*seedReport) {
	t.Helper()
	binary := workerBinary(t)
	workers := min(runtime.NumCPU(), count)
	started := make([]*worker, workers)
	for i := range workers {
		started[i] = startWorker(t, binary, share{From: from + uint64(i), Step: int64(workers), Count: (count - i + workers - 1) / workers})
	}
	for _, p := range started {
		reports = append(reports, p.wait()...)
	}
	if len(reports) != count {
		t.Errorf("got reports of %d seeds, want %d", len(reports), count)
	}
	return reports
}

// workerBinary builds the worker without the race detector. The race detector makes the order of goroutines random on
// purpose. In bubbles of testing/synctest, the race detector sometimes ends the process (golang/go#78156).
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

var builtDir string

// builtWorker builds the worker's binary once, in the directory builtDir. TestMain removes the directory.
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

// regressionSeeds reads testdata/seeds.txt. Each line has a seed, and the fault that the seed found.
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
