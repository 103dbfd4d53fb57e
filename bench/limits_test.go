package bench

import (
	"fmt"
	"testing"
)

func TestLimits(t *testing.T) {
	a := newArena(t)
	var found struct {
		Rate []limitRun `json:"rate"`
		Keys []orderRun `json:"keys"`
	}
	fmt.Print("\n", limitHead, "\n")
	for _, redis := range []bool{true, false} {
		r := limitRun{Entries: 400, Redis: redis}.run(a)
		found.Rate = append(found.Rate, r)
		fmt.Println(r)
	}
	fmt.Print("\n| backlog | Redis | entries/s without a limit | with a limit for each key | cost of an entry | processor time of an entry |\n|---|---|---|---|---|---|\n")
	for pair := range *pairs {
		for _, redis := range []bool{true, false} {
			free, limited := orderRun{Keys: 1000, Each: 10, Redis: redis}, orderRun{Keys: 1000, Each: 10, Redis: redis, Limited: true}
			if pair%2 == 0 {
				free, limited = free.run(a), limited.run(a)
			} else {
				limited, free = limited.run(a), free.run(a)
			}
			found.Keys = append(found.Keys, free, limited)
			fmt.Printf("| 1,000 keys × 10 | %v | %.0f | %.0f | %.2f | %.2f |\n", redis, free.Rate, limited.Rate, free.Rate/limited.Rate, limited.CPU/free.CPU)
		}
	}
	a.must(save("../build/limits.json", found))
}
