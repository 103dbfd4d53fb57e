package bench

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

var (
	most  = flag.Int("most", 10_000_000, "the largest table of TestScale, in waiting entries")
	still = flag.Duration("still", 60*time.Second, "how long TestScale watches a process at rest")
	each  = flag.Duration("each", 20*time.Second, "how long TestFleet measures the instances at rest, and again while they record")
	loses = flag.String("loses", "its key", "fault of the type's queue in TestLostType")
)

// TestScale takes about half an hour. With 10 million entries it needs 12 GB of disk.
func TestScale(t *testing.T) {
	tables := []int{10_000, 100_000, 1_000_000, 10_000_000}
	if *most < tables[0] {
		t.Fatalf("-most %d: want at least %d waiting entries, the smallest table", *most, tables[0])
	}
	a := newArena(t, "--innodb-buffer-pool-size=8G")
	var result scale
	fmt.Print("\n", growthHead, "\n")
	for _, entries := range tables {
		if entries <= *most {
			g := a.grow(entries)
			result.Growth = append(result.Growth, g)
			fmt.Println(g)
			result.Idle = append(result.Idle, a.measureIdle(entries, 1, *still))
		}
	}
	a.empty()
	result.Idle = append(result.Idle, a.measureIdle(0, 1, *still), a.measureIdle(0, 1000, *still))
	fmt.Print("\n", idleHead, "\n")
	for _, i := range result.Idle {
		fmt.Println(i)
	}
	fmt.Print("\n", crowdHead, "\n")
	for _, instances := range []int{1, 2, 4, 8} {
		c := a.crowd(instances, 40_000, 100_000)
		result.Crowd = append(result.Crowd, c)
		fmt.Println(c)
	}
	result.Recovery = a.recovery(100_000, min(1_000_000, *most))
	fmt.Print("\n", result.Recovery, "\n")
	a.must(save("../build/scale.json", result))
}

// TestFleet takes five minutes.
func TestFleet(t *testing.T) {
	a := newArena(t, "--max-connections=2000")
	var results []fleet
	fmt.Print("\n", fleetHead, "\n")
	for _, types := range []int{1, 40} {
		for _, instances := range []int{1, 10, 100} {
			for _, f := range a.fleet(instances, types, 1000, *each) {
				results = append(results, f)
				fmt.Println(f)
			}
		}
	}
	a.must(save("../build/fleet.json", results))
}

// TestLostType runs pairs: one run in which Redis loses the queue of a type, and one run without this loss. A pair
// takes 50 s. With -short, there is one pair of a few seconds, which only checks that no entry runs twice.
func TestLostType(t *testing.T) {
	a := newArena(t)
	lose := losses[*loses]
	if lose == nil {
		t.Fatalf("-loses: want one of %q", slices.Sorted(maps.Keys(losses)))
	}
	plan, most := wholeLoss, *pairs
	if testing.Short() {
		plan, most = shortLoss, 1
	}
	fmt.Printf("\n"+lostHead+"\n", *loses)
	for pair := range most {
		fmt.Println(a.measureLostType(plan, pair, lose))
	}
}

type scale struct {
	Growth   []growth `json:"growth"`
	Idle     []idle   `json:"idle"`
	Crowd    []crowd  `json:"crowd"`
	Recovery recovery `json:"recovery"`
}
