package bench

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

var without = flag.String("without", "", "path of the test binary of this package that was built without some features; make bench-without builds it")

// The works use none of the features that one build lacks.
func TestWithout(t *testing.T) {
	if *without == "" {
		t.Fatal("-without names no binary: run make bench-without")
	}
	a := newArena(t)
	n := func(full int) int { return max(1, int(float64(full)**size)) }
	sides := [2]*sideProcess{a.startSide(os.Args[0]), a.startSide(*without)}
	chosen := partsIn(t, "only", *only, workRecord, workSustained, workDrain)
	var found []featureRow
	for _, w := range []featureWork{
		{name: workRecord, entries: n(8_000)},
		{name: workSustained, entries: n(6_000)},
		{name: workDrain, entries: n(40_000), backlog: true},
	} {
		if !chosen(w.name) {
			continue
		}
		a.runFeaturePairs(featureWork{w.name, w.entries / 4, w.backlog}, sides[0], sides[1], 1) // Warm both up.
		found = append(found, a.runFeaturePairs(w, sides[0], sides[1], *pairs))
	}
	fmt.Print("\n", featureHead, "\n")
	for _, r := range found {
		fmt.Println(r)
	}
	a.must(save(*out, found))
}
