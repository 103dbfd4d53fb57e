package bench

import (
	"fmt"
	"testing"
	"time"
)

func TestOrder(t *testing.T) {
	a := newArena(t)
	n := func(each int) int { return max(1, int(float64(each)**size)) }
	var found []orderRun
	measure := func(r orderRun) orderRun {
		r = r.run(a)
		found = append(found, r)
		fmt.Println(r)
		return r
	}
	fmt.Print("\n", orderHead, "\n")
	var says []string
	for _, redis := range []bool{false, true} {
		backlog := orderRun{Keys: 40, Each: n(250), Redis: redis}
		free := measure(backlog)
		backlog.Serial = true
		ordered := measure(backlog)
		says = append(says, fmt.Sprintf("40 keys, redis=%v: %.2f of the rate without order (goal 0.3), %.2f row writes an entry (goal 4)", redis, ordered.Rate/free.Rate, ordered.Writes))
	}
	for _, redis := range []bool{false, true} {
		slow := orderRun{Keys: 100, Each: n(100), Redis: redis, Handler: 20 * time.Millisecond}
		free := measure(slow)
		slow.Serial = true
		slow = measure(slow)
		says = append(says, fmt.Sprintf("100 keys, redis=%v, calls of 20 ms: %.2f of what 100 at once allow (goal 0.7), without order %.2f", redis, slow.Rate/slow.maxRate(), free.Rate/free.maxRate()))
	}
	for _, line := range says {
		fmt.Println(line)
	}
	a.must(save("../build/order.json", found))
}
