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
	deadlines = flag.Int("deadlines", 10_000, "how many")
	span      = flag.Duration("span", 30*time.Second, "the longest delay; the shortest is 1 s")
	timeout   = flag.Duration("patience", time.Minute, "after the last deadline, until what has not fired counts as not fired")
	only      = flag.String("only", "", "only the mechanisms whose name contains this")
	out       = flag.String("out", "../../build/delay", "where the table and the picture go, less .md, .json, .svg and .png")
)

func TestMain(m *testing.M) {
	runService()
	os.Exit(testservers.Main(m))
}

// TestDelay holds every mechanism's trial and prints the table. It measures; nothing here fails for being late.
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
			r, err := e.hold(t, p)
			if err != nil {
				t.Fatal(err)
			}
			t.Log("\n" + tableHead + r.line())
			results = append(results, r)
		})
	}
	fmt.Print("\n", table(p, results))
	if err := save(*out, p, results); err != nil {
		t.Fatal(err)
	}
}
