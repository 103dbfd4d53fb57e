package bench

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator"
)

// The instances of a crowd live in one process. Each has a separate Compensator, pool and Redis connection.
type crowd struct {
	Instances int     `json:"instances"`
	Sustained float64 `json:"sustained_per_second"`
	Drain     float64 `json:"drain_per_second"`
	Deadlocks int     `json:"deadlocks"`
	LockWaits int     `json:"lock_waits"`
}

const crowdHead = "| instances | record and run /s | drain /s | deadlocks | lock waits |\n| ---: | ---: | ---: | ---: | ---: |"

func (c crowd) String() string {
	return fmt.Sprintf("| %d | %.0f | %.0f | %d | %d |", c.Instances, c.Sustained, c.Drain, c.Deadlocks, c.LockWaits)
}

func (a *arena) crowd(instances, sustained, drained int) crowd {
	a.Helper()
	a.empty()
	c := crowd{Instances: instances}
	deadlocks, waits := a.conflicts()
	c.Sustained = a.runTogether(instances, sustained, func(members []*library) {
		var turn atomic.Int64
		_, err := share(sustained, producers, func(int) error {
			_, err := members[turn.Add(1)%int64(instances)].record(a.Context(), 1, compensator.Options{})
			return err
		})
		a.must(err)
	})
	a.empty()
	a.backlog(drained)
	c.Drain = a.runTogether(instances, drained, func([]*library) {})
	after, waitsAfter := a.conflicts()
	c.Deadlocks, c.LockWaits = after-deadlocks, waitsAfter-waits
	return c
}

// runTogether returns the number of entries settled a second.
func (a *arena) runTogether(instances, n int, work func([]*library)) float64 {
	a.Helper()
	members := make([]*library, instances)
	for i := range members {
		members[i] = a.newLibrary(1000/instances, nothing)
		defer members[i].close()
	}
	began := time.Now()
	for _, l := range members {
		l.run()
	}
	work(members)
	a.waitUntil(func() bool {
		var settled int64
		for _, l := range members {
			settled += l.settled.Load()
		}
		return settled >= int64(n)
	})
	return float64(n) / time.Since(began).Seconds()
}

// conflicts returns how many deadlocks and row lock waits the server has counted since it started.
func (a *arena) conflicts() (deadlocks, waits int) {
	a.Helper()
	rows, err := a.admin.QueryContext(a.Context(), "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_deadlocks','Innodb_row_lock_waits')")
	a.must(err)
	defer rows.Close()
	for rows.Next() {
		var name string
		var n int
		a.must(rows.Scan(&name, &n))
		if strings.Contains(name, "deadlocks") {
			deadlocks = n
		} else {
			waits = n
		}
	}
	a.must(rows.Err())
	return deadlocks, waits
}
