package delay

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const tableHead = "| mechanism | recorded/s | early, by at most | p50 late | p99 late | max late | max late around the kill | waiting at the kill | never fired | fired twice | fired, but held as not done |\n" +
	"| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"

func (r result) line() string {
	cells := []string{r.Name, r.NotHere, "", "", "", "", "", "", "", "", ""}
	if r.NotHere == "" {
		cells = []string{r.Name, fmt.Sprintf("%.0f", r.RecordRate), r.early(), r.late(r.P50), r.late(r.P99), r.late(r.Max), length(r.OverKill), strconv.Itoa(r.Waiting), r.lost(), r.firedTwice(), strconv.Itoa(r.Again)}
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

func (r result) early() string {
	if r.Early == 0 {
		return "0"
	}
	return fmt.Sprintf("%d, %s", r.Early, length(r.EarlyBy))
}

func (r result) late(ms float64) string {
	if r.Calm == 0 {
		return "–"
	}
	return length(ms)
}

func (r result) lost() string {
	if r.NotFired == 0 {
		return "0"
	}
	return fmt.Sprintf("%d, %d of them held", r.NotFired, r.Held)
}

// firedTwice returns the number of deadlines that fired twice. A deadline fires twice if its entry ran twice. A
// deadline also fires twice if the mechanism recorded it as two entries, and each of them ran once. If the second kind
// occurred, the text also has the number of entries that ran twice.
func (r result) firedTwice() string {
	if r.Twice == 0 || r.Entries == r.Twice {
		return strconv.Itoa(r.Twice)
	}
	return fmt.Sprintf("%d, as %d entries run twice", r.Twice, r.Entries)
}

func length(ms float64) string {
	switch size := max(ms, -ms); {
	case size < 100:
		return fmt.Sprintf("%.1f ms", ms)
	case size < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}

func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Round(10*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
}

func table(p plan, results []result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d deadlines, %s to %s after each was recorded. The service was killed %s after the last record, and started again at once.\n\n",
		p.Deadlines, seconds(shortest), seconds(p.Span), seconds(p.killAfter()))
	b.WriteString(tableHead)
	for _, r := range results {
		b.WriteString(r.line())
	}
	fmt.Fprintf(&b, `
- p50, p99 and max late leave out the deadlines between %s before the kill and %s after the restart. "Max late around the kill" shows these deadlines.
- "early" counts all deadlines.
- "never fired" counts deadlines that had not fired %s after the last deadline. The mechanism may still fire those that its store holds as not done. The others are lost.
- "fired, but held as not done": the handler ran, but the mechanism's store does not know it, so the handler may run again.

`, seconds(p.lead()), seconds(p.tail()), seconds(p.Timeout))
	for _, r := range results {
		fmt.Fprintf(&b, "- %s: %s%s\n", r.Name, r.Setting, servers(r.Versions))
	}
	return b.String()
}

func servers(versions string) string {
	if versions == "" {
		return ""
	}
	return " (" + versions + ")"
}

// Durations of the plan are in ns.
type report struct {
	Plan    plan     `json:"plan"`
	Results []result `json:"results"`
}

func save(base string, p plan, results []result) error {
	if err := os.MkdirAll(filepath.Dir(base), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(base+".md", []byte(table(p, results)), 0o644); err != nil {
		return err
	}
	data, err := json.MarshalIndent(report{p, results}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(base+".json", append(data, '\n'), 0o644); err != nil {
		return err
	}
	return draw(p, results, base+".png", base+".svg")
}
