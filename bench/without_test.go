package bench

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
)

var without = flag.String("without", "", "path of the test binary of this package that was built without some features; make bench-without builds it")

// TestWithout compares this test binary with the binary of -without, which was built without some features. Both do the
// same works, and these works use none of the missing features.
func TestWithout(t *testing.T) {
	if *without == "" {
		t.Fatal("-without names no binary: run make bench-without")
	}
	a := newArena(t)
	a.compareSides(chosenWorks(t), [2]*sideProcess{a.startSide(os.Args[0], false), a.startSide(*without, false)})
}

func TestOperations(t *testing.T) {
	a := newArena(t)
	a.compareSides(chosenWorks(t), [2]*sideProcess{a.startSide(os.Args[0], true), a.startSide(os.Args[0], false)})
}

func chosenWorks(t *testing.T) []featureWork {
	chosen := partsIn(t, "only", *only, workRecord, workSustained, workDrain)
	return slices.DeleteFunc(usualWorks(), func(w featureWork) bool { return !chosen(w.name) })
}

// usualWorks are the works of entries that succeed.
func usualWorks() []featureWork {
	n := func(full int) int { return max(1, int(float64(full)**size)) }
	return []featureWork{
		{name: workRecord, entries: n(8_000)},
		{name: workSustained, entries: n(6_000)},
		{name: workDrain, entries: n(40_000), backlog: true},
	}
}

// compareSides lets two sides do each work in turn, and prints and saves a row for each work.
func (a *arena) compareSides(works []featureWork, sides [2]*sideProcess) {
	a.Helper()
	var found []featureRow
	for _, w := range works {
		a.runFeaturePairs(featureWork{w.name, max(1, w.entries/4), w.backlog}, sides[0], sides[1], 1) // Warm both up.
		found = append(found, a.runFeaturePairs(w, sides[0], sides[1], *pairs))
	}
	fmt.Print("\n", featureHead, "\n")
	for _, r := range found {
		fmt.Println(r)
	}
	a.must(save(*out, found))
}
