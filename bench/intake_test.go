package bench

import (
	"fmt"
	"testing"
)

func TestIntake(t *testing.T) {
	n := max(2000, int(100_000**size))
	var rows []row
	add := shown(t, func() {
		fmt.Print("\n", table(rows), "\n")
		if err := save("../build/intake.json", rows); err != nil {
			t.Error(err)
		}
	})
	a := newArena(t)
	for _, c := range []contest{a.takenIn(n), a.poisoned(n)} {
		r := c.runPairs(a, *pairs)
		add(func() { rows = append(rows, r) })
	}
}
