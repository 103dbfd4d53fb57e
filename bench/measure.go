package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// contest is one kind of work that the library and another side do in turn. Each run returns a rate, so higher is
// better.
type contest struct {
	work, other string
	unit        string
	entries     int     // entries of each run (0: the cost of an entry is not measured)
	goal        float64 // smallest acceptable ratio of the library's rate to the other side's (0: no goal)
	reset       func()  // runs before each run (nil: every table and key is emptied)
	prepare     func()  // runs after reset and is not measured; may be nil
	prepareThem func()  // replaces prepare for the other side; nil: both have the same
	ours        func() float64
	theirs      func() float64 // runs the other side; nil if a program that it needs is missing
}

// row is the result of a contest: a row of the table and an object in build/bench.json.
type row struct {
	Work   string     `json:"work"`
	Other  string     `json:"other"`
	Unit   string     `json:"unit"`
	Ours   spread     `json:"ours"`
	Theirs spread     `json:"theirs"`
	Ratio  spread     `json:"ratio"`  // this library's value divided by the other one's, in each pair of runs
	Within [2]float64 `json:"within"` // range of the ratio without the lowest and the highest pair; with ten pairs it holds the median with 98 % confidence
	Goal   float64    `json:"goal,omitempty"`
	Pairs  int        `json:"pairs"`

	OursCost   cost `json:"ours_cost,omitzero"` // cost of an entry in the last pair
	TheirsCost cost `json:"theirs_cost,omitzero"`

	Lost   int  `json:"lost,omitempty"`   // jobs that the other side never ran, in all pairs
	Absent bool `json:"absent,omitempty"` // whether it was not measured, because a program that the other side needs is missing
}

type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spreadOf(figures []float64) spread {
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}

func within(figures []float64) [2]float64 {
	sorted := slices.Sorted(slices.Values(figures))
	cut := min(1, (len(sorted)-1)/2)
	return [2]float64{sorted[cut], sorted[len(sorted)-1-cut]}
}

// The sides take turns in running first, so that the servers are equally warm for both.
func (c contest) runPairs(a *arena, pairs int) row {
	if c.theirs == nil {
		return row{Work: c.work, Other: c.other, Unit: c.unit, Goal: c.goal, Absent: true}
	}
	if c.reset == nil {
		c.reset = a.empty
	}
	a.lost = 0
	if c.prepareThem == nil {
		c.prepareThem = c.prepare
	}
	var ours, theirs, ratios []float64
	var oursCost, theirsCost cost
	side := func(prepare func(), run func() float64, to *[]float64, asked *cost) {
		c.reset()
		if prepare != nil {
			prepare()
		}
		*asked = a.costOf(max(1, c.entries), func() { *to = append(*to, run()) })
	}
	for pair := range pairs {
		if pair%2 == 0 {
			side(c.prepare, c.ours, &ours, &oursCost)
			side(c.prepareThem, c.theirs, &theirs, &theirsCost)
		} else {
			side(c.prepareThem, c.theirs, &theirs, &theirsCost)
			side(c.prepare, c.ours, &ours, &oursCost)
		}
		ratios = append(ratios, ours[pair]/theirs[pair])
		a.Logf("%-44s %-28s pair %d: ours %.0f, other %.0f %s", c.work, c.other, pair+1, ours[pair], theirs[pair], c.unit)
	}
	r := row{Work: c.work, Other: c.other, Unit: c.unit, Ours: spreadOf(ours), Theirs: spreadOf(theirs), Ratio: spreadOf(ratios), Goal: c.goal, Pairs: pairs, Lost: a.lost, Within: within(ratios)}
	if c.entries > 0 {
		r.OursCost, r.TheirsCost = oursCost, theirsCost
	}
	return r
}

func (r row) verdict() string {
	switch {
	case r.Goal == 0 || r.Absent:
		return ""
	case r.Ratio.Median >= r.Goal:
		return "ok"
	}
	return "short"
}

func table(rows []row) string {
	var b strings.Builder
	line := func(cells ...string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line("work", "other", "ours", "other's", "ratio", "goal", "")
	line("---", "---", "---:", "---:", "---:", "---:", "---")
	for _, r := range rows {
		goal := ""
		if r.Goal > 0 {
			goal = fmt.Sprintf("≥ %.2f", r.Goal)
		}
		if r.Absent {
			line(r.Work, r.Other, "", notHere, "", goal, "")
			continue
		}
		line(r.Work, r.Other, r.Ours.String()+" "+r.Unit, r.Theirs.String()+" "+r.Unit+lostNote(r.Lost),
			fmt.Sprintf("%.2f (%.2f–%.2f)", r.Ratio.Median, r.Ratio.Min, r.Ratio.Max), goal, r.verdict())
	}
	return b.String()
}

// The table leaves out peers, because they also use other servers.
func costs(rows []row) string {
	var b strings.Builder
	for _, r := range rows {
		if r.OursCost != (cost{}) {
			fmt.Fprintf(&b, "| %s | ours | %s |\n| | %s | %s |\n", r.Work, r.OursCost, r.Other, r.TheirsCost)
		}
	}
	return costHead + "\n" + b.String()
}

const notHere = "not here"

func lostNote(lost int) string {
	if lost == 0 {
		return ""
	}
	return fmt.Sprintf(", %d never ran", lost)
}

func (s spread) String() string { return fmt.Sprintf("%.0f (%.0f–%.0f)", s.Median, s.Min, s.Max) }

type report struct {
	Contests  []row  `json:"contests"`
	Latencies []lags `json:"latencies"` // in nanoseconds
}

func save(path string, result any) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// share returns the number of calls a second.
func share(n, workers int, run func(worker int) error) (float64, error) {
	var left atomic.Int64
	var failed atomic.Pointer[error]
	left.Store(int64(n))
	var group sync.WaitGroup
	began := time.Now()
	for w := range workers {
		group.Go(func() {
			for left.Add(-1) >= 0 && failed.Load() == nil {
				if err := run(w); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(n) / time.Since(began).Seconds(), nil
}
