package bench

import (
	"fmt"
	"strings"
	"testing"
	"time"
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
		a.calm(n(20)),
	}
	var rows []row
	for _, c := range contests {
		if strings.Contains(c.work, *only) {
			rows = append(rows, c.hold(a, rounds))
		}
	}
	fmt.Print("\n", table(rows), "\n", lagHead, "\n")
	var latencies []lags
	for _, plan := range []lagPlan{
		{work: "commit → handler, 500/s, same process", goal: 2 * time.Millisecond, instances: 1},
		{work: "commit → handler, 500/s, another process's entries", goal: 5 * time.Millisecond, instances: 1, apart: true},
		{work: "due → handler, delay 2 s, 500/s, 1 instance", goal: 10 * time.Millisecond, delay: 2 * time.Second, instances: 1},
		{work: "due → handler, delay 2 s, 500/s, 8 instances", goal: 20 * time.Millisecond, delay: 2 * time.Second, instances: 8},
	} {
		if strings.Contains(plan.work, *only) && !*quick {
			l := a.lag(plan, 20)
			latencies = append(latencies, l)
			fmt.Println(l)
		}
	}
	if err := save(*out, report{rows, latencies}); err != nil {
		t.Fatal(err)
	}
}
