package delay

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/compensator-go/compensator/internal/testservers"
)

var (
	deadlines = flag.Int("deadlines", 10_000, "number of deadlines")
	span      = flag.Duration("span", 30*time.Second, "the longest delay; the shortest is 1 s")
	timeout   = flag.Duration("patience", time.Minute, "time after the last deadline until a missing firing counts as not fired")
	only      = flag.String("only", "", "run only mechanisms whose names contain this text")
	out       = flag.String("out", "../../build/delay", "path of the table and the picture, without the extensions .md, .json, .svg and .png")
)

func TestMain(m *testing.M) {
	runService()
	os.Exit(testservers.Main(m))
}

// TestDelay compares how late the mechanisms fire. Lateness is a result and no failure of the test.
func TestDelay(t *testing.T) {
	p := plan{Deadlines: *deadlines, Span: *span, Timeout: *timeout}
	if p.Deadlines < 1 || p.Span <= shortest {
		t.Fatal("want at least one deadline, and a span of more than 1 s")
	}
	var results []result
	for _, e := range entrants {
		if !strings.Contains(e.name, *only) {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			r, err := e.runTrial(t, p)
			if err != nil {
				t.Fatal(err)
			}
			t.Log("\n" + tableHead + r.line())
			results = append(results, r)
		})
	}
	if len(results) == 0 && !t.Failed() {
		t.Fatalf("-only %q: no mechanism's name contains this text", *only)
	}
	fmt.Print("\n", table(p, results))
	if err := save(*out, p, results); err != nil {
		t.Fatal(err)
	}
}
