package bench

import (
	"flag"
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
