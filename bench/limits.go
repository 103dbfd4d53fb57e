package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
)

type limitRun struct {
	Entries int  `json:"entries"`
	Redis   bool `json:"redis"`

	Took       time.Duration `json:"took_ns"`    // from the commit to the end of the last entry
	Statements int64         `json:"statements"` // statements of both processes in this time
}

// With limitOfRun, the last of n entries starts (n − 5) / 20 seconds after the first.
var limitOfRun = compensator.Limit{Rate: compensator.PerSecond(20), Burst: 5}

const limitHead = "| entries at 20/s, burst 5, two processes | Redis | took | statements |\n|---|---|---|---|"

func (r limitRun) String() string {
	redis := "no"
	if r.Redis {
		redis = "yes"
	}
	return fmt.Sprintf("| %d | %s | %.2f s | %d |", r.Entries, redis, r.Took.Seconds(), r.Statements)
}

func (r limitRun) run(a *arena) limitRun {
	a.Helper()
	a.empty()
	a.exec("TRUNCATE TABLE common_process_log_limit")
	v := victim{DSN: a.dsn, Lease: 30 * time.Second, Entries: 100, Takes: time.Microsecond, Limited: true}
	var client *redis.Client
	if r.Redis {
		v.Redis, client = a.redis.Addr(), a.client()
		defer client.Close()
	}
	for range 2 {
		defer a.startVictim(v)()
	}
	recorder, err := openLibrary(a.openWatched(2), client, compensator.HandlerConfig[raw]{}, nil, nil)
	a.must(err)
	_, err = compensator.Declare[raw](a.Context(), recorder.Compensator, benchType, &compensator.TypeConfig{Codec: asIs{}, Limit: limitOfRun})
	a.must(err)
	time.Sleep(time.Second) // Let both processes find nothing to do.
	before := a.questions()
	receipt, err := recorder.record(a.Context(), r.Entries, compensator.Options{})
	a.must(err)
	receipt.Committed()
	began, ours := time.Now(), int64(0)
	for open := r.Entries; open > 0; ours++ {
		time.Sleep(20 * time.Millisecond)
		a.must(a.admin.QueryRowContext(context.Background(), "SELECT COUNT(*) FROM common_process_log WHERE state<>1").Scan(&open))
	}
	r.Took = time.Since(began)
	r.Statements = a.questions() - before - ours
	a.must(recorder.Close())
	return r
}

// questions returns the number of statements that the server has received so far. The statement that questions itself
// sends does not count.
func (a *arena) questions() (n int64) {
	a.Helper()
	var name string
	a.must(a.admin.QueryRowContext(a.Context(), "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n))
	return n - 1
}
