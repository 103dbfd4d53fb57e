package adopt

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Report counts what a pass of an Import did. After a DryRun it counts what a pass would do. The keys of Recorded,
// Known and Refused are business types.
type Report struct {
	Rows     int            // rows that Config.Where found
	Recorded map[string]int // rows that became entries
	Known    map[string]int // rows whose entries already existed
	Skipped  map[string]int // rows that Map skipped; the key is the reason given to Skip
	Refused  map[string]int // refused rows; the key is "" if Map returned no entry
	Busy     int            // rows that were locked, or had changed when the pass reached them; the next pass reads them again

	Refusals []*Refusal // the first 1,000 refusals
}

// Refusal is a row that cannot become an entry, with the reason.
type Refusal struct {
	Key          string // key of the row, as text
	BusinessType string // empty if Map returned no entry
	Err          error  // the error of Map or of Record; a panic of Map is a *compensator.PanicError
}

func (r *Refusal) Error() string { return fmt.Sprintf("adopt: row %s is refused: %v", r.Key, r.Err) }
func (r *Refusal) Unwrap() error { return r.Err }

const mostRefusals = 1000

func newReport() *Report {
	return &Report{Recorded: map[string]int{}, Known: map[string]int{}, Skipped: map[string]int{}, Refused: map[string]int{}}
}

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

// String returns the counts, one per line.
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
