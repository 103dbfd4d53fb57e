package delay

import (
	"context"
	"errors"
	"testing"
	"time"
)

type mechanism interface {
	// prepare starts the mechanism's servers, which run until the test ends, and creates the tables. It returns
	// errNotHere if a program is not installed.
	prepare(tb testing.TB) (place, error)

	// serve runs in the service. It starts to fire due deadlines, also those that an earlier process recorded. It
	// returns the function with which this process records deadlines. ctx ends with the process.
	serve(ctx context.Context, p place, fire fire) (record, error)

	// unfinished returns the numbers of the deadlines that the mechanism's own store holds as not done. The call may
	// disturb the mechanism, so it is made only after everything has fired, or at the end.
	unfinished(ctx context.Context, p place) ([]int, error)
}

// fire reports that deadline number n has fired. It may be called concurrently. A mechanism that can record one
// deadline twice passes its own id of the recorded deadline as entry. All other mechanisms pass 0.
type fire func(n int, entry uint64)

// record records deadline number n, which fires after delay. It returns when the mechanism has accepted the deadline.
// It is called concurrently.
type record func(ctx context.Context, n int, delay time.Duration) error

type place struct {
	SQL      string `json:",omitempty"` // DSN
	Redis    string `json:",omitempty"` // host:port
	Postgres string `json:",omitempty"` // URL
	RabbitMQ string `json:",omitempty"` // URL
	Versions string `json:",omitempty"` // versions of the servers, for the table
}

var errNotHere = errors.New("not here")

type entrant struct {
	name, setting string
	mechanism
}

var entrants = []entrant{
	{"timer polling", "MariaDB table, index on (status, due_at); every 1 s pages of 100 until one is short; UPDATE to claim, handler, UPDATE to finish", polling{}},
	{"RabbitMQ TTL + DLX", "one durable waiting queue, persistent messages, `expiration` each, dead-lettered to the queue consumed; publisher confirms, prefetch 100, manual acks", rabbitMQ{}},
	{"Redis key expiry", "`notify-keyspace-events Ex`, SET … PX, one subscriber of `__keyevent@0__:expired`", keyExpiry{}},
	{"timing wheel", "in the process's memory, hashed, 512 slots × 10 ms, rounds", timingWheel{}},
	{"compensator on Redis", "MariaDB and Redis, the Connector; all defaults: lease 30 s", ours{redis: true}},
	{"compensator, no Redis", "MariaDB, the Connector; all defaults: lease 30 s, timing wheel, and polling every 1 s", ours{}},
	{"River", "PostgreSQL, ScheduledAt; MaxWorkers 100, else defaults: a leader looks for scheduled jobs, and a killed one is replaced after up to 15 s and the next election", riverQueue{}},
	{"asynq", "Redis, ProcessIn; Concurrency 10, else defaults; scheduled tasks are looked for every 5 s", asynqQueue{}},
}

func entrantNamed(name string) (entrant, bool) {
	for _, e := range entrants {
		if e.name == name {
			return e, true
		}
	}
	return entrant{}, false
}
