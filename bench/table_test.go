package bench

import (
	"fmt"
	"strings"
	"testing"
)

// TestBench holds every contest and prints the table. It measures; nothing here fails for being slow.
func TestBench(t *testing.T) {
	size, rounds := 1.0, *pairs
	if *quick {
		size, rounds = 0.2, 3
	}
	n := func(full int) int { return int(float64(full) * size) }
	a := newArena(t)
	contests := []contest{
		a.records(n(50_000), 1),
		a.withoutEntry(n(50_000)),
		a.records(n(2_000), 100),
		a.sustained(n(50_000)),
		a.drain(n(200_000), 2),
		a.drain(n(200_000), 4),
	}
	var rows []row
	for _, c := range contests {
		if strings.Contains(c.work, *only) {
			rows = append(rows, c.hold(a, rounds))
		}
	}
	fmt.Print("\n", table(rows), "\n")
	if err := save(*out, rows); err != nil {
		t.Fatal(err)
	}
}
