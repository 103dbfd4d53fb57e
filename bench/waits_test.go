package bench

import (
	"fmt"
	"testing"
	"time"
)

func TestWaits(t *testing.T) {
	a := newArena(t)
	var found []waitRun
	fmt.Print("\n", waitHead, "\n")
	for _, load := range []waitPlan{{Callers: 2, Calls: 80}, {Callers: 16, Calls: 320}, {Callers: 16, Calls: 320, Takes: 1500 * time.Millisecond}} {
		load.Calls = max(load.Callers, int(float64(load.Calls)**size))
		for _, apart := range []bool{false, true} {
			for _, redis := range []bool{true, false} {
				plan := load
				plan.Redis, plan.Apart = redis, apart
				run := a.waits(plan)
				found = append(found, run)
				fmt.Println(run)
			}
		}
	}
	statements, aRound := a.crowdOfWaits(1000)
	fmt.Printf("1,000 callers in one process: %d SELECTs in 2 s, %.2f each 50 ms (goal 2)\n", statements, aRound)
	a.must(save("../build/waits.json", found))
}
