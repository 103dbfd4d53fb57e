package bench

import (
	"fmt"
	"testing"
)

// TestRelay measures how many messages a second reach a durable queue, with confirms. It also counts messages that
// arrive twice because a process was killed.
func TestRelay(t *testing.T) {
	n := func(full int) int { return max(200, int(float64(full)**size)) }
	a := newArena(t)
	p := a.newPost()
	var rows []row
	for _, batch := range []int{1, relayBatch} {
		rows = append(rows, p.relayed(n(50_000), batch).runPairs(a, *pairs))
		for _, c := range p.throughWatermill(n(20_000), batch) {
			rows = append(rows, c.runPairs(a, *pairs))
		}
	}
	fmt.Print("\n", table(rows), "\n", doubledHead, "\n")
	var kills []doubled
	for _, batch := range []int{1, relayBatch} {
		d := p.measureDoubled(n(50_000), 10, batch)
		kills = append(kills, d)
		fmt.Println(d)
		if d.Lost > 0 {
			t.Errorf("%d messages were lost", d.Lost)
		}
	}
	a.must(save("../build/relay.json", map[string]any{"relayed": rows, "killed": kills}))
}
