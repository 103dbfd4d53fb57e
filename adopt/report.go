package adopt

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Report is what a pass has done; of a DryRun, what it would have. Entries are counted by business type.
type Report struct {
	Rows     int            // that Config.Where found
	Recorded map[string]int // became entries
	Known    map[string]int // had their entry already
	Skipped  map[string]int // by the reason given to Skip
	Refused  map[string]int // under "" if Map made no entry of them
	Busy     int            // were locked by somebody, or changed, when their turn came: the next pass looks again

	Refusals []*Refusal // the first 1,000 of them
}

// Refusal is a row that cannot become an entry, and why.
type Refusal struct {
	Key          string
	BusinessType string // empty if Map made no entry of it
	Err          error  // Map's, its panic as a *compensator.PanicError, or Record's
}

func (r *Refusal) Error() string { return fmt.Sprintf("adopt: row %s is refused: %v", r.Key, r.Err) }
func (r *Refusal) Unwrap() error { return r.Err }

const mostRefusals = 1000

func newReport() *Report {
	return &Report{Recorded: map[string]int{}, Known: map[string]int{}, Skipped: map[string]int{}, Refused: map[string]int{}}
}

// add is for what a transaction has counted, once it has ended well.
func (r *Report) add(t *Report) {
	r.Rows += t.Rows
	r.Busy += t.Busy
	for _, counts := range [...][2]map[string]int{{r.Recorded, t.Recorded}, {r.Known, t.Known}, {r.Skipped, t.Skipped}, {r.Refused, t.Refused}} {
		for name, n := range counts[1] {
			counts[0][name] += n
		}
	}
	r.Refusals = append(r.Refusals, t.Refusals[:min(len(t.Refusals), mostRefusals-len(r.Refusals))]...)
}

func (r *Report) refuse(refusal *Refusal) {
	r.Refused[refusal.BusinessType]++
	r.Refusals = append(r.Refusals, refusal)
}

// String is the counts, a line each.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rows      %8d", r.Rows)
	for _, c := range []struct {
		what   string
		counts map[string]int
	}{{"recorded", r.Recorded}, {"known", r.Known}, {"skipped", r.Skipped}, {"refused", r.Refused}} {
		for _, name := range slices.Sorted(maps.Keys(c.counts)) {
			fmt.Fprintf(&b, "\n%-9s %8d  %s", c.what, c.counts[name], cmp.Or(name, "of no type"))
		}
	}
	if r.Busy > 0 {
		fmt.Fprintf(&b, "\nbusy      %8d", r.Busy)
	}
	return b.String()
}
