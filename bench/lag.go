package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/compensator-go/compensator"
)

type lags struct {
	Work   string        `json:"work"`
	N      int           `json:"n"`
	P50    time.Duration `json:"p50"`
	P99    time.Duration `json:"p99"`
	Max    time.Duration `json:"max"`
	Less   int           `json:"early"`            // handlers that began before they were due
	Lost   int           `json:"lost,omitempty"`   // handlers that never began
	Goal   time.Duration `json:"goal,omitempty"`   // goal for P99; 0 means that no goal is set
	Absent bool          `json:"absent,omitempty"` // whether it was not measured, because a program that it needs is missing
}

type latency struct {
	work    string
	measure func() lags
}

func lagsOf(work string, goal time.Duration, all []time.Duration) lags {
	slices.Sort(all)
	l := lags{Work: work, N: len(all), Goal: goal, P50: all[len(all)/2], P99: all[len(all)*99/100], Max: all[len(all)-1]}
	for _, d := range all {
		if d < 0 {
			l.Less++
		}
	}
	return l
}

func (l lags) String() string {
	if l.Absent {
		return fmt.Sprintf("| %s | %s | | | | | | |", l.Work, notHere)
	}
	goal := ""
	if l.Goal > 0 {
		goal = "≤ " + ms(l.Goal)
	}
	return fmt.Sprintf("| %s | %d%s | %s | %s | %s | %d | %s | %s |", l.Work, l.N, lostNote(l.Lost), ms(l.P50), ms(l.P99), ms(l.Max), l.Less, goal, l.verdict())
}

func ms(d time.Duration) string { return strconv.FormatFloat(d.Seconds()*1000, 'f', 1, 64) }

func (l lags) verdict() string {
	switch {
	case l.Goal == 0:
		return ""
	case l.P99 > l.Goal || l.Less > 0:
		return "short"
	}
	return "ok"
}

const lagHead = "| latency | entries | p50 ms | p99 ms | max ms | early | p99 goal | |\n| --- | ---: | ---: | ---: | ---: | ---: | --- | --- |"

type starts struct {
	mu sync.Mutex // guards at
	at map[string]time.Time
}

func newStarts() *starts { return &starts{at: make(map[string]time.Time)} }

func (s *starts) note(id string) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at[id] = now
}

func (s *starts) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// latencies returns a latency for each entry in the parameter from, a map from entry ids to moments. The latency of an
// entry is the time from its moment to the start of its handler. latencies leaves out entries whose handler never
// started.
//
// Without a delay, the moment of an entry is the end of Commit. A handler may start before Commit has returned to the
// caller. The latency of its entry then counts as 0.
func (s *starts) latencies(from map[string]time.Time, delay time.Duration) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]time.Duration, 0, len(from))
	for id, moment := range from {
		at, began := s.at[id]
		switch {
		case began && delay == 0:
			all = append(all, max(0, at.Sub(moment)))
		case began:
			all = append(all, at.Sub(moment))
		}
	}
	return all
}

// A latency begins at the end of Commit or, for delayed entries, at the due time. The benchmark computes the due time
// before the insert and the library during it, so no punctual handler appears early.
type lagPlan struct {
	work      string
	goal      time.Duration
	delay     time.Duration
	instances int  // number of instances that run handlers
	apart     bool // whether the producer runs no handlers itself
}

func (a *arena) lag(plan lagPlan, seconds int) latency {
	return latency{plan.work, func() lags {
		a.empty()
		seen := newStarts()
		handler := func(_ context.Context, e *compensator.Entry) error {
			seen.note(e.ID.String())
			return nil
		}
		var workers []*library
		for range plan.instances {
			l := a.newLibrary(100, handler)
			l.run()
			defer l.close()
			workers = append(workers, l)
		}
		producer := workers[0]
		if plan.apart {
			producer = a.newLibrary(0, nil)
			defer producer.close()
		}
		time.Sleep(300 * time.Millisecond) // Wait until the scanners have made their first claims.
		from := atRate(500, 500*seconds, func() (string, time.Time) {
			recorded := time.Now()
			receipt, err := producer.record(a.Context(), 1, compensator.Options{Delay: plan.delay})
			a.must(err)
			if plan.delay > 0 {
				return receipt.ID().String(), recorded.Add(plan.delay)
			}
			return receipt.ID().String(), time.Now()
		})
		a.waitUntil(func() bool { return seen.count() >= len(from) })
		return lagsOf(plan.work, plan.goal, seen.latencies(from, plan.delay))
	}}
}

// commits shows how much of the other latencies comes from writing the commit to disk.
func (a *arena) commits(seconds int) latency {
	const work = "for comparison: a business transaction + 1 entry, 500/s"
	return latency{work, func() lags {
		a.empty()
		l := a.newLibrary(0, nil)
		defer l.close()
		return lagsOf(work, 0, a.timedRecords(l, seconds))
	}}
}

// None of the entries of timedRecords comes due.
func (a *arena) timedRecords(l *library, seconds int) []time.Duration {
	return slices.Collect(maps.Values(atRate(500, 500*seconds, func() (string, time.Duration) {
		began := time.Now()
		receipt, err := l.record(a.Context(), 1, compensator.Options{Delay: time.Hour})
		a.must(err)
		return receipt.ID().String(), time.Since(began)
	})))
}

// atRate does not wait for one call to return before it makes the next.
func atRate[T any](rate, n int, do func() (string, T)) map[string]T {
	var mu sync.Mutex // guards found
	found := make(map[string]T, n)
	var group sync.WaitGroup
	began := time.Now()
	for i := range n {
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		group.Go(func() {
			id, answer := do()
			mu.Lock()
			defer mu.Unlock()
			found[id] = answer
		})
	}
	group.Wait()
	return found
}
