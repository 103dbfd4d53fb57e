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
	seedsFlag = flag.Int("seeds", 300, "how many seeds TestSeeds lives")
	fromFlag  = flag.Uint64("from", 1, "the first of them")
	seedFlag  = flag.Uint64("seed", 1, "the seed TestSeed lives")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(workEnv) != "" {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}

// live lives one seed in a bubble.
func live(t *testing.T, seed uint64, logger *slog.Logger) *world {
	var w *world
	synctest.Test(t, func(*testing.T) {
		w = newWorld(seed)
		w.logger = logger
		w.run()
	})
	return w
}

// TestSeed replays one seed, in a process of its own as every seed does. With -v it prints the whole walk and the
// engine's log.
func TestSeed(t *testing.T) {
	process := startWorker(t, workerBinary(t), share{From: *seedFlag, Step: 1, Count: 1, Walk: testing.Verbose(), Log: testing.Verbose()})
	for _, life := range process.wait() {
		life.report(t)
	}
}

// TestSeeds lives many seeds, on all processors.
func TestSeeds(t *testing.T) {
	lives := liveAll(t, *fromFlag, *seedsFlag)
	var sum tally
	for _, life := range lives {
		life.report(t)
		sum.add(life.Tally)
	}
	t.Logf("%d seeds: %s", len(lives), sum)
	if *seedsFlag >= enoughSeeds {
		for _, never := range sum.missing() {
			t.Errorf("vacuous: in %d seeds there was no %s", *seedsFlag, never)
		}
	}
}

// enoughSeeds is how many it takes for everything to have come up.
const enoughSeeds = 1000

// TestRegressionSeeds lives the seeds that once found something.
func TestRegressionSeeds(t *testing.T) {
	for _, seed := range regressionSeeds(t) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			for _, life := range startWorker(t, workerBinary(t), share{From: seed, Step: 1, Count: 1}).wait() {
				life.report(t)
			}
		})
	}
}

// TestSameSeedWalksTheSameWay lives seeds in different processes, in different company, and demands the same
// decisions.
func TestSameSeedWalksTheSameWay(t *testing.T) {
	const seeds = 200
	first, second := make(map[uint64]*lifeReport), make(map[uint64]*lifeReport)
	binary := workerBinary(t)
	there := startWorker(t, binary, share{From: *fromFlag, Step: 1, Count: seeds})
	back := startWorker(t, binary, share{From: *fromFlag + seeds - 1, Step: -1, Count: seeds})
	for _, life := range there.wait() {
		first[life.Seed] = life
	}
	for _, life := range back.wait() {
		second[life.Seed] = life
	}
	for seed, one := range first {
		if other := second[seed]; other == nil || one.Hash != other.Hash {
			t.Errorf("seed %d: walks %+v and %+v", seed, one, other)
		}
	}
	if len(first) != seeds {
		t.Errorf("got %d walks, want %d", len(first), seeds)
	}
}
