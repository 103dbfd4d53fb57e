package bench

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var part = flag.String("part", "", "comma-separated parts that TestAdmin measures: "+strings.Join(adminParts, ",")+"; empty: all")

var adminParts = []string{"pages", "viewers", "producers", "browser", "idle", "pairs", "deaths", "attempts"}

// TestAdmin takes about twelve minutes with -pairs 10. With 10 million entries it needs 8 GB of disk.
func TestAdmin(t *testing.T) {
	wants := partsIn(t, "part", *part, adminParts...)
	var figures []figure
	add := shown(t, func() {
		fmt.Print("\n", figureHead, "\n")
		for _, f := range figures {
			fmt.Println(f)
		}
		if err := save("../build/admin.json", figures); err != nil {
			t.Error(err)
		}
	})
	a := newArena(t, adminServer...)
	tell := func(name string, measure func() []figure) {
		if wants(name) {
			began := time.Now()
			measured := measure()
			add(func() { figures = append(figures, measured...) })
			t.Logf("%s: %v", name, time.Since(began).Round(time.Second))
		}
	}
	n := func(full int) int { return max(1, int(float64(full)**size)) }
	if slices.ContainsFunc([]string{"pages", "viewers", "producers", "browser", "idle"}, wants) {
		began := time.Now()
		a.fillAdminLog(*most)
		t.Logf("%d ended entries: %v", *most, time.Since(began).Round(time.Second))
		h := a.adminLog()
		tell("pages", func() []figure { return a.adminPages(h) })
		tell("viewers", func() []figure { return a.adminViewers(h) })
		tell("producers", func() []figure { return a.adminBeside(h, *pairs, n(20_000)) })
		tell("browser", func() []figure { return a.adminBrowser(h) })
		h.close()
		// An idle process looks for dead entries without a case every twelve minutes. With the default of -still, this
		// measurement takes twelve minutes too, so it includes one search.
		tell("idle", func() []figure { return a.adminIdle(12 * *still) })
	}
	tell("pairs", func() []figure {
		return ratios(a.operated(a.failAndDie(2)).runPairs(a, *pairs), operationsSides, 0.95)
	})
	tell("deaths", func() []figure {
		dead := n(10_000)
		return []figure{{What: fmt.Sprintf("%d entries die at once: until all have their cases", dead), Unit: "s", Most: []float64{30}, Got: []float64{a.dieAtOnce(dead)}}}
	})
	tell("attempts", func() (found []figure) {
		for _, c := range []contest{a.drainWithFailures(n(40_000)), a.sustainedWithFailures(n(6000))} {
			found = append(found, ratios(a.attempted(c).runPairs(a, *pairs), attemptsSides, 0.7)...)
		}
		return append(found, ratios(a.attempted(a.failAndDie(2)).runPairs(a, *pairs), attemptsSides, 0.7)...)
	})
}
