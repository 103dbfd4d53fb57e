package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/compensator-go/compensator"
)

// lags are latencies of one work; the table shows them beside the contests.
type lags struct {
	Work string        `json:"work"`
	N    int           `json:"n"`
	P50  time.Duration `json:"p50"`
	P99  time.Duration `json:"p99"`
	Max  time.Duration `json:"max"`
	Less int           `json:"early"` // that began before they were due
	Goal time.Duration `json:"goal,omitempty"`
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
	verdict := "ok"
	if l.P99 > l.Goal || l.Less > 0 {
		verdict = "short"
	}
	ms := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds()*1000, 'f', 1, 64) }
	return fmt.Sprintf("| %s | %d | %s | %s | %s | %d | ≤ %s | %s |", l.Work, l.N, ms(l.P50), ms(l.P99), ms(l.Max), l.Less, ms(l.Goal), verdict)
}

const lagHead = "| latency | entries | p50 ms | p99 ms | max ms | early | p99 goal | |\n| --- | ---: | ---: | ---: | ---: | ---: | --- | --- |"

// starts notes when each entry's handler began.
type starts struct {
	mu sync.Mutex // guards at
	at map[compensator.EntryID]time.Time
}

func (s *starts) note(_ context.Context, e *compensator.Entry) error {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at[e.ID] = now
	return nil
}

func (s *starts) of(id compensator.EntryID) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, found := s.at[id]
	return at, found
}

func (s *starts) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// lagPlan is one latency to ask for: from the end of Commit, or from the due moment, to the handler's start. The
// due moment is counted from just before the insert, so that nothing early can look on time.
type lagPlan struct {
	work      string
	goal      time.Duration
	delay     time.Duration
	instances int  // that run handlers
	apart     bool // the producer runs none itself
}

// lag records 500 entries a second for a while and asks how long after its commit, or its due moment, each
// handler began.
func (a *arena) lag(plan lagPlan, seconds int) lags {
	a.empty()
	seen := &starts{at: make(map[compensator.EntryID]time.Time)}
	var workers []*library
	for range plan.instances {
		l := a.ours(100, seen.note)
		l.run()
		defer l.close()
		workers = append(workers, l)
	}
	producer := workers[0]
	if plan.apart {
		producer = a.ours(0, nil)
		defer producer.close()
	}
	time.Sleep(300 * time.Millisecond) // the scanners have looked once
	from := atRate(500, 500*seconds, func() (compensator.EntryID, time.Time) {
		recorded := time.Now()
		receipt, err := producer.record(a.Context(), 1, compensator.Options{Delay: plan.delay})
		a.must(err)
		if plan.delay > 0 {
			return receipt.ID(), recorded.Add(plan.delay)
		}
		return receipt.ID(), time.Now()
	})
	a.until(func() bool { return seen.count() >= len(from) })
	all := make([]time.Duration, 0, len(from))
	for id, since := range from {
		at, _ := seen.of(id)
		all = append(all, at.Sub(since))
	}
	if plan.delay == 0 { // a born-claimed entry may begin before its Commit has returned to the caller
		for i := range all {
			all[i] = max(0, all[i])
		}
	}
	return lagsOf(plan.work, plan.goal, all)
}

// atRate calls do n times, evenly spread over n/rate seconds, however long each takes.
func atRate[T any](rate, n int, do func() (compensator.EntryID, T)) map[compensator.EntryID]T {
	var mu sync.Mutex // guards found
	found := make(map[compensator.EntryID]T, n)
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
