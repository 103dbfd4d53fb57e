package bench

import (
	"fmt"
	"testing"
)

// TestIntake measures how many messages of a stream become committed entries a second.
func TestIntake(t *testing.T) {
	n := max(2000, int(100_000**size))
	a := newArena(t)
	rows := []row{a.takenIn(n).runPairs(a, *pairs), a.poisoned(n).runPairs(a, *pairs)}
	fmt.Print("\n", table(rows), "\n")
	a.must(save("../build/intake.json", rows))
}
