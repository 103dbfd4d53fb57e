package sim

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

var (
	seedsFlag  = flag.Int("seeds", 300, "how many seeds TestSeeds runs")
	fromFlag   = flag.Uint64("from", 1, "the first of them")
	replayFlag = flag.Int("replays", 200, "how many seeds TestSameSeedWalksTheSameWay runs")
	seedFlag   = flag.Uint64("seed", 1, "the seed that TestSeed runs")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(workEnv) != "" {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(builtDir)
		os.Exit(code)
	}))
}

func runSeed(t *testing.T, seed uint64, logger *slog.Logger) *world {
	var w *world
	synctest.Test(t, func(*testing.T) {
		w = newWorld(seed)
		w.logger = logger
		w.run()
	})
	return w
}

// With -v it prints every step and the engine's log.
func TestSeed(t *testing.T) {
	process := startWorker(t, workerBinary(t), share{From: *seedFlag, Step: 1, Count: 1, Walk: testing.Verbose(), Log: testing.Verbose()})
	for _, report := range process.wait() {
		report.report(t)
	}
}

func TestSeeds(t *testing.T) {
	reports := runAll(t, *fromFlag, *seedsFlag)
	var sum tally
	for _, report := range reports {
		report.report(t)
		sum.add(report.Tally)
	}
	t.Logf("%d seeds: %s", len(reports), sum)
	if *seedsFlag >= enoughSeeds {
		for _, never := range sum.missing() {
			t.Errorf("vacuous: in %d seeds there was no %s", *seedsFlag, never)
		}
	}
}

// enoughSeeds is the number of seeds (simulated runs) that surely reach every fault, and every situation that the tally
// counts. The first seed of the run does not matter. A test of fewer seeds may miss some.
const enoughSeeds = 1000

func TestRegressionSeeds(t *testing.T) {
	for _, seed := range regressionSeeds(t) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			for _, report := range startWorker(t, workerBinary(t), share{From: seed, Step: 1, Count: 1}).wait() {
				report.report(t)
			}
		})
	}
}

// TestSameSeedWalksTheSameWay runs each seed in two processes, and requires the same decisions in both.
//
// On a busy machine the runtime may interrupt a goroutine between two steps, so that the two runs of a seed differ. The
// test repeats the run of each such seed in more processes. A real difference appears in these processes, too.
func TestSameSeedWalksTheSameWay(t *testing.T) {
	binary := workerBinary(t)
	there := startWorker(t, binary, share{From: *fromFlag, Step: 1, Count: *replayFlag})
	back := startWorker(t, binary, share{From: *fromFlag + uint64(*replayFlag) - 1, Step: -1, Count: *replayFlag})
	differ := differing(t, there.wait(), back.wait(), *replayFlag)
	if len(differ) > 2+*replayFlag/50 {
		t.Errorf("%d of %d seeds made different decisions, want none, or one in fifty on a busy machine", len(differ), *replayFlag)
	}
	for _, seed := range differ {
		requireSameWalk(t, binary, seed)
	}
	t.Logf("%d seeds lived twice; interrupted by the runtime: %v", *replayFlag, differ)
}

func differing(t *testing.T, first, second []*seedReport, count int) (differ []uint64) {
	t.Helper()
	other := make(map[uint64]*seedReport, count)
	for _, report := range second {
		other[report.Seed] = report
	}
	if len(first) != count || len(other) != count {
		t.Fatalf("got the decisions of %d and %d seeds, want %d", len(first), len(other), count)
	}
	for _, report := range first {
		if other[report.Seed].Hash != report.Hash {
			differ = append(differ, report.Seed)
		}
	}
	return differ
}

func requireSameWalk(t *testing.T, binary string, seed uint64) {
	t.Helper()
	walks := make(map[uint64]int)
	for range 4 {
		for _, report := range startWorker(t, binary, share{From: seed, Step: 1, Count: 1}).wait() {
			walks[report.Hash]++
		}
	}
	for _, n := range walks {
		if n >= 3 {
			return
		}
	}
	t.Errorf("seed %d: got %d different walks of 4, want the same each time", seed, len(walks))
}
