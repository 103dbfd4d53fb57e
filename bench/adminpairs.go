package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/compensator-go/compensator"
)

func (a *arena) operated(c contest) contest {
	without := c.ours
	c.other, c.goal, c.theirs = "the same without Operations", 0, without
	c.ours = func() float64 {
		a.operations = operations()
		defer func() { a.operations = nil }()
		return without()
	}
	return c
}

const (
	operationsSides = "with Operations ÷ without"
	attemptsSides   = "with Attempts ÷ Operations alone"
)

var errFails = errors.New("POST https://psp.example/v2/refund: status 503")

// Each entry fails, fails again a second later, and is then dead.
func (a *arena) failAndDie(seconds int) contest {
	const aSecond = 2000
	n := aSecond * seconds
	var begins time.Time
	return contest{
		work: "every attempt fails, 2,000 come due a second", unit: "outcomes/s", entries: n,
		prepare: func() {
			a.insert(n)
			begins = time.Now().Add(2 * time.Second)
			a.exec("UPDATE common_process_log SET next_at=?+(id-1)*1000 DIV ?", begins.UnixMilli(), aSecond)
			a.enqueue(0)
			a.writeBack()
		},
		ours: func() float64 {
			l := a.newLibraryWith(compensator.HandlerConfig[raw]{Concurrency: 1000, MaxAttempts: 2, Retry: compensator.Fixed(time.Second)}, fails)
			defer l.close()
			l.run()
			a.waitUntil(func() bool { return l.settled.Load() >= int64(2*n) })
			return float64(2*n) / time.Since(begins).Seconds()
		},
	}
}

func fails(context.Context, *compensator.Entry) error { return errFails }

func (a *arena) dieAtOnce(n int) float64 {
	a.Helper()
	a.empty()
	a.backlog(n)
	a.operations = operations()
	defer func() { a.operations = nil }()
	l := a.newLibraryWith(compensator.HandlerConfig[raw]{Concurrency: 1000}, func(context.Context, *compensator.Entry) error { return compensator.Permanent(errFails) })
	defer l.close()
	began := time.Now()
	l.run()
	a.waitUntil(func() bool { return l.settled.Load() >= int64(n) })
	took := time.Since(began).Seconds()
	var cases int
	a.must(a.admin.QueryRowContext(a.Context(), "SELECT COUNT(*) FROM common_process_log_case c JOIN common_process_log l ON l.id=c.entry_id AND l.state=-2 WHERE c.closed_at=0").Scan(&cases))
	if cases != n {
		a.Fatalf("%d of %d dead entries have their cases", cases, n)
	}
	return took
}

// ratios returns the figures of a contest between the library with a setting and the library without this setting. The
// parameter least is the goal: the median of the ratio must not be smaller.
func ratios(r row, sides string, least float64) []figure {
	return []figure{
		{What: fmt.Sprintf("%s, %s: median of %d pairs", r.Work, sides, r.Pairs), Least: true, Most: []float64{least}, Got: []float64{r.Ratio.Median}},
		{What: "its interval: upper / lower end", Least: true, Got: []float64{r.Within[1], r.Within[0]}},
		{What: "statements / Redis calls / allocations an entry, more than without",
			Got: []float64{r.OursCost.Statements - r.TheirsCost.Statements, r.OursCost.Redis - r.TheirsCost.Redis, r.OursCost.Allocs - r.TheirsCost.Allocs}},
	}
}
