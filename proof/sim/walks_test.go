package sim

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

var (
	walksFlag     = flag.String("walks", "", "the directory into which TestRecordWalks writes; make traces runs it")
	walkSeedsFlag = flag.Int("walk-seeds", 200, "how many seeds it writes")
)

func TestRecordWalks(t *testing.T) {
	if *walksFlag == "" {
		t.Skip("make traces runs this, with a directory to write to")
	}
	binary := workerBinary(t)
	waiting := make(map[uint64]map[uint64]int)
	for i := range *walkSeedsFlag {
		waiting[uint64(i)+1] = make(map[uint64]int)
	}
	if err := os.MkdirAll(*walksFlag, 0o777); err != nil {
		t.Fatal(err)
	}
	for round := 0; len(waiting) > 0; round++ {
		if round == maxRunsOfAWalk {
			t.Fatalf("seeds that never made the same decisions twice: %v", slices.Sorted(maps.Keys(waiting)))
		}
		for _, report := range runSeeds(t, binary, slices.Sorted(maps.Keys(waiting))) {
			walks := waiting[report.Seed]
			if walks[report.Hash]++; walks[report.Hash] < 2 {
				continue
			}
			if err := os.WriteFile(filepath.Join(*walksFlag, fmt.Sprintf("%04d.txt", report.Seed)), []byte(report.Walk), 0o666); err != nil {
				t.Fatal(err)
			}
			delete(waiting, report.Seed)
		}
	}
}

const maxRunsOfAWalk = 12

// Consecutive seeds run in one process.
func runSeeds(t *testing.T, binary string, seeds []uint64) (reports []*seedReport) {
	t.Helper()
	for len(seeds) > 0 {
		n := 1
		for n < len(seeds) && n < 50 && seeds[n] == seeds[0]+uint64(n) {
			n++
		}
		reports = append(reports, startWorker(t, binary, share{From: seeds[0], Step: 1, Count: n, Walk: true}).wait()...)
		seeds = seeds[n:]
	}
	return reports
}
