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

// contest is one work done by two sides in turn. Each run returns its figure: a rate, higher is better.
type contest struct {
	work, other string
	unit        string
	entries     int     // of each run; 0: its cost is not asked
	goal        float64 // ours ÷ other, at least; 0: shown only
	reset       func()  // before each run; nil: every table and key is emptied
	prepare     func()  // then, not measured; may be nil
	ours        func() float64
	theirs      func() float64 // nil: a program that it needs is not here
}

// row is the outcome of a contest, a line of the table and of build/bench.json.
type row struct {
	Work   string     `json:"work"`
	Other  string     `json:"other"`
	Unit   string     `json:"unit"`
	Ours   spread     `json:"ours"`
	Theirs spread     `json:"theirs"`
	Ratio  spread     `json:"ratio"`  // within each pair
	Within [2]float64 `json:"within"` // the ratio's ends without the least and the greatest pair: of ten, 98 % that its median is there
	Goal   float64    `json:"goal,omitempty"`
	Pairs  int        `json:"pairs"`

	OursCost   cost `json:"ours_cost,omitzero"` // of an entry, in the last pair
	TheirsCost cost `json:"theirs_cost,omitzero"`

	Lost   int  `json:"lost,omitempty"`   // jobs that the other never ran, of all pairs
	Absent bool `json:"absent,omitempty"` // not measured: a program that the other needs is not here
}

// spread is the median of some figures, and their ends.
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

// hold runs the pairs. Who begins alternates, so that neither always runs on warmer servers.
func (c contest) hold(a *arena, pairs int) row {
	if c.theirs == nil {
		return row{Work: c.work, Other: c.other, Unit: c.unit, Goal: c.goal, Absent: true}
	}
	if c.reset == nil {
		c.reset = a.empty
	}
	a.lost = 0
	var ours, theirs, ratios []float64
	var oursCost, theirsCost cost
	side := func(run func() float64, to *[]float64, asked *cost) {
		c.reset()
		if c.prepare != nil {
			c.prepare()
		}
		*asked = a.costOf(max(1, c.entries), func() { *to = append(*to, run()) })
	}
	for pair := range pairs {
		if pair%2 == 0 {
			side(c.ours, &ours, &oursCost)
			side(c.theirs, &theirs, &theirsCost)
		} else {
			side(c.theirs, &theirs, &theirsCost)
			side(c.ours, &ours, &oursCost)
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

// table is the run's result for a reader.
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

// costs is what an entry costs, for a reader; with peers only ours says much, since they use other servers, too.
func costs(rows []row) string {
	var b strings.Builder
	for _, r := range rows {
		if r.OursCost != (cost{}) {
			fmt.Fprintf(&b, "| %s | ours | %s |\n| | %s | %s |\n", r.Work, r.OursCost, r.Other, r.TheirsCost)
		}
	}
	return costHead + "\n" + b.String()
}

// notHere stands where a figure would, when a program is not on this machine.
const notHere = "not here"

func lostNote(lost int) string {
	if lost == 0 {
		return ""
	}
	return fmt.Sprintf(", %d never ran", lost)
}

func (s spread) String() string { return fmt.Sprintf("%.0f (%.0f–%.0f)", s.Median, s.Min, s.Max) }

// report is what build/bench.json holds.
type report struct {
	Contests  []row  `json:"contests"`
	Latencies []lags `json:"latencies"` // in ns
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

// share runs work n times, split among workers that begin together, and returns how many were done a second.
func share(n, workers int, work func(worker int) error) (float64, error) {
	var left atomic.Int64
	var failed atomic.Pointer[error]
	left.Store(int64(n))
	var group sync.WaitGroup
	began := time.Now()
	for w := range workers {
		group.Go(func() {
			for left.Add(-1) >= 0 && failed.Load() == nil {
				if err := work(w); err != nil {
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
