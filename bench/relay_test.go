package bench

import (
	"fmt"
	"testing"
)

func TestRelay(t *testing.T) {
	n := func(full int) int { return max(200, int(float64(full)**size)) }
	var rows []row
	var kills []doubled
	add := shown(t, func() {
		fmt.Print("\n", table(rows), "\n", doubledHead, "\n")
		for _, d := range kills {
			fmt.Println(d)
		}
		if err := save("../build/relay.json", map[string]any{"relayed": rows, "killed": kills}); err != nil {
			t.Error(err)
		}
	})
	a := newArena(t)
	p := a.newPost()
	for _, batch := range []int{1, relayBatch} {
		for _, c := range append([]contest{p.relayed(n(50_000), batch)}, p.throughWatermill(n(20_000), batch)...) {
			r := c.runPairs(a, *pairs)
			add(func() { rows = append(rows, r) })
		}
	}
	for _, batch := range []int{1, relayBatch} {
		d := p.measureDoubled(n(50_000), 10, batch)
		add(func() { kills = append(kills, d) })
		if d.Lost > 0 {
			t.Errorf("%d messages were lost", d.Lost)
		}
	}
}
