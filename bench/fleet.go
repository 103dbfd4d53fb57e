package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator"
)

// Each instance of a fleet has its own Compensator, pool and Redis connections, and a handler for every type. All
// instances live in this process.
type fleet struct {
	Instances  int           `json:"instances"`
	Types      int           `json:"types"`
	Recorded   int           `json:"recorded_per_second"` // 0: the instances had nothing to do
	Statements float64       `json:"statements_per_second"`
	Rows       float64       `json:"rows_read_per_second"`
	Redis      float64       `json:"redis_calls_per_second"`
	RedisCPU   float64       `json:"redis_cpu_percent"`
	Database   float64       `json:"database_cpu_percent"`
	Process    float64       `json:"process_cpu_percent"`
	Sessions   float64       `json:"sessions"` // the server's open connections, with those of the instances' own pools
	P50        time.Duration `json:"p50_ns"`   // time from commit to handler
	P99        time.Duration `json:"p99_ns"`
}

const fleetHead = "| instances | types | recorded /s | statements /s | rows read /s | Redis calls /s | Redis CPU % | database CPU % | process CPU % | sessions | commit → handler, p50 ms | p99 ms |\n" +
	"| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"

func (f fleet) String() string {
	return fmt.Sprintf("| %d | %d | %d | %.1f | %.0f | %.1f | %.1f | %.1f | %.1f | %.0f | %s | %s |",
		f.Instances, f.Types, f.Recorded, f.Statements, f.Rows, f.Redis, f.RedisCPU, f.Database, f.Process, f.Sessions, ms(f.P50), ms(f.P99))
}

// fleet measures the instances twice: at rest, and while they record entries. The parameter rate is the number of
// recorded entries a second. The parameter each is the duration of one measurement.
func (a *arena) fleet(instances, types, rate int, each time.Duration) (results []fleet) {
	a.Helper()
	a.empty()
	seen := newStarts()
	handler := func(_ context.Context, e *compensator.Entry) error {
		seen.note(e.ID.String())
		return nil
	}
	members := make([]*library, instances)
	for i := range members {
		members[i] = a.oursOn(a.openWatched(2), compensator.HandlerConfig[raw]{}, nil)
		defer members[i].close()
		a.must(members[i].addTypes(types, handler))
		members[i].run()
	}
	time.Sleep(10 * time.Second) // Wait until the instances have done the work of their start.

	var turn atomic.Int64
	record := func() (string, time.Time) {
		n := int(turn.Add(1))
		receipt, err := members[n%instances].recordType(a.Context(), numberedType(n/instances%types), 1, compensator.Options{})
		a.must(err)
		return receipt.ID().String(), time.Now()
	}
	for _, recorded := range []int{0, rate} {
		runtime.GC()
		before, spent, redisSpent := a.serverWork(), processCPU(), a.redisCPU()
		var from map[string]time.Time
		if recorded == 0 {
			time.Sleep(each)
		} else {
			from = atRate(recorded, recorded*int(each.Seconds()), record)
			a.waitUntil(func() bool { return seen.count() >= len(from) })
		}
		used := processCPU() - spent
		after := a.serverWork()
		seconds := each.Seconds()
		f := fleet{
			Instances: instances, Types: types, Recorded: recorded,
			Statements: (after.statements - before.statements - 2) / seconds, // Subtract the two statements of this measurement.
			Rows:       (after.rows - before.rows) / seconds,
			Redis:      (after.redis - before.redis) / seconds,
			RedisCPU:   100 * (a.redisCPU() - redisSpent) / seconds,
			Database:   100 * (after.cpu - before.cpu) / seconds,
			Process:    100 * used / seconds,
			Sessions:   a.status("Threads_connected"),
		}
		if recorded > 0 {
			late := lagsOf("", 0, seen.latencies(from, 0))
			f.P50, f.P99 = late.P50, late.P99
		}
		results = append(results, f)
	}
	return results
}
