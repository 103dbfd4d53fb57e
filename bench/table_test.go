package bench

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestBench prints its figures and compares them with their goals. A low figure is a result and no failure of the test.
// If a contest fails, or -timeout is about to end the program, the table still shows the contests before it.
func TestBench(t *testing.T) {
	factor, rounds := *size, *pairs
	if *quick {
		factor /= 20
		if !given("pairs") {
			rounds = 3
		}
	}
	n := func(full int) int { return max(1, int(float64(full)*factor)) }
	var found report
	add := shown(t, func() { show(t, found) })
	a := newArena(t)
	if !*quick {
		a.startPeers()
	}
	for _, c := range contests(a, n) {
		if strings.Contains(c.work+" "+c.other, *only) {
			r := c.runPairs(a, rounds)
			add(func() { found.Contests = append(found.Contests, r) })
		}
	}
	for _, l := range latencies(a, n) {
		if strings.Contains(l.work, *only) {
			measured := l.measure()
			add(func() { found.Latencies = append(found.Latencies, measured) })
		}
	}
	if len(found.Contests)+len(found.Latencies) == 0 {
		t.Errorf("-only %q: no contest's name contains this text", *only)
	}
}

func given(name string) (found bool) {
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

func show(t *testing.T, found report) {
	fmt.Print("\n", table(found.Contests), "\n", costs(found.Contests), "\n", lagHead, "\n")
	for _, l := range found.Latencies {
		fmt.Println(l)
	}
	if err := save(*out, found); err != nil {
		t.Error(err)
	}
}

// contests returns the contests of the table: first those with the floors, then those with the peers.
func contests(a *arena, n func(full int) int) []contest {
	all := []contest{
		a.records(n(50_000), 1),
		a.withoutEntry(n(50_000)),
		a.records(n(2_000), 100),
		a.sustained(n(50_000)),
		a.drain(n(200_000), 2),
		a.drain(n(200_000), 4),
		a.calm(n(20)),
		a.calmByHand(n(20)),
	}
	if *quick {
		return all
	}
	all = append(all, a.keeping(n(50_000))) // Leave this out of a quick run, which would end before the first purge round.
	river, tuned := a.river("River", riverPlain), a.river("River, tuned", riverTuned)
	asynq, asynqTuned := a.asynq("asynq", asynqPlain), a.asynq("asynq, tuned", asynqTuned)
	watermill, hand := a.watermill("watermill-sql"), a.handWritten("a hand-written poller")
	againstRiver := a.drainAgainst(tuned, n(200_000))
	againstRiver.goal = 2
	recordsAgainstRiver, sustainedAgainstRiver := a.recordsAgainst(river, n(50_000), 1), a.sustainedAgainst(tuned, n(50_000))
	recordsAgainstRiver.goal, sustainedAgainstRiver.goal = 1.4, 1.5
	// Slow peers get less work. Only the rates are compared.
	return append(all,
		a.withoutConnector(n(50_000)),
		recordsAgainstRiver,
		a.recordsAgainst(river, n(2_000), 100),
		a.sustainedAgainst(river, n(10_000)),
		sustainedAgainstRiver,
		a.drainAgainst(river, n(10_000)),
		againstRiver,
		a.recordsAgainst(asynq, n(50_000), 1),
		a.sustainedAgainst(asynq, n(50_000)),
		a.sustainedAgainst(asynqTuned, n(50_000)),
		a.drainAgainst(asynq, n(50_000)),
		a.drainAgainst(asynqTuned, n(200_000)),
		a.recordsAgainst(watermill, n(50_000), 1),
		a.sustainedAgainst(watermill, n(50_000)),
		a.drainAgainst(watermill, n(200_000)),
		a.sustainedAgainst(hand, n(10_000)),
		a.drainAgainst(hand, n(10_000)),
	)
}

func latencies(a *arena, n func(full int) int) []latency {
	if *quick {
		return nil
	}
	all := []latency{a.commits(n(20))}
	for _, plan := range []lagPlan{
		{work: "commit → handler, 500/s, same process", goal: 2 * time.Millisecond, instances: 1},
		{work: "commit → handler, 500/s, another process's entries", goal: 5 * time.Millisecond, instances: 1, apart: true},
		{work: "due → handler, delay 2 s, 500/s, 1 instance", goal: 5 * time.Millisecond, delay: 2 * time.Second, instances: 1},
		{work: "due → handler, delay 2 s, 500/s, 8 instances", goal: 20 * time.Millisecond, delay: 2 * time.Second, instances: 8},
	} {
		all = append(all, a.lag(plan, n(20)))
	}
	for _, r := range []rival{
		a.river("River", riverPlain), a.river("River, tuned", riverTuned),
		a.asynq("asynq", asynqPlain), a.asynq("asynq, tuned", asynqTuned),
		a.handWritten("a hand-written poller"),
	} {
		all = append(all, a.lagOf(r, 0, n(20)), a.lagOf(r, 2*time.Second, n(20)))
	}
	return all
}
