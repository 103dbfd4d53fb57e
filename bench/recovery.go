package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
)

type recovery struct {
	Killed      []killed      `json:"killed"`
	Enqueued    int           `json:"announced"`          // number of entries within the horizon when Redis lost all data
	Seconds     float64       `json:"announced_seconds"`  // seconds from the first entry that Redis held again to the last
	Bytes       float64       `json:"redis_bytes"`        // bytes of Redis memory per entry
	Backlog     int           `json:"backlog"`            // number of due entries after an outage
	BacklogRate float64       `json:"backlog_per_second"` // rate at which the backlog is run
	NewP50      time.Duration `json:"new_p50_ns"`         // time from the commit of a new entry to its handler
	NewP99      time.Duration `json:"new_p99_ns"`
	NewRate     int           `json:"new_per_second"` // new entries a second
}

func (r recovery) String() string {
	var b strings.Builder
	b.WriteString(killedHead + "\n")
	for _, k := range r.Killed {
		fmt.Fprintln(&b, k)
	}
	fmt.Fprintf(&b, "\n| what | figure |\n| --- | ---: |\n| Redis bytes an entry | %.0f |\n| enqueued again after a FLUSHALL, of %d | %.0f /s |\n"+
		"| backlog of %d worked off, while %d new ones a second come | %.0f /s |\n| commit → handler of the new ones, p50 / p99 | %s / %s ms |",
		r.Bytes, r.Enqueued, float64(r.Enqueued)/r.Seconds, r.Backlog, r.NewRate, r.BacklogRate,
		ms(r.NewP50), ms(r.NewP99))
	return b.String()
}

func (a *arena) recovery(enqueued, backlog int) recovery {
	a.Helper()
	r := recovery{Enqueued: enqueued, Backlog: backlog, NewRate: 500}
	for _, lease := range []time.Duration{30 * time.Second, 5 * time.Second} { // the default lease, and a short lease
		r.Killed = append(r.Killed, a.measureKill(lease, 100))
	}
	a.flushRedis(&r)
	a.outage(&r)
	return r
}

func (a *arena) flushRedis(r *recovery) {
	a.Helper()
	a.empty()
	for left := r.Enqueued; left > 0; left -= floorBatch {
		_, err := floorRecord(a.Context(), a.admin, min(left, floorBatch), floorTuple, 8*time.Minute)
		a.must(err)
	}
	client := a.client()
	defer client.Close()
	before := a.redisBytes(client)
	l := a.newLibrary(100, nothing)
	defer l.close()
	l.run()
	known := func() int { return int(client.ZCard(a.Context(), dueKey).Val()) }
	a.waitUntil(func() bool { return known() >= r.Enqueued })
	r.Bytes = (a.redisBytes(client) - before) / float64(r.Enqueued)
	a.must(client.FlushAll(a.Context()).Err())
	a.waitUntil(func() bool { return known() > 0 })
	first, had := time.Now(), known()
	a.waitUntil(func() bool { return known() >= r.Enqueued })
	r.Seconds = time.Since(first).Seconds() * float64(r.Enqueued) / float64(r.Enqueued-had)
}

func (a *arena) redisBytes(client *redis.Client) float64 {
	a.Helper()
	info, err := client.InfoMap(a.Context(), "memory").Result()
	a.must(err)
	used, err := strconv.ParseFloat(info["Memory"]["used_memory"], 64)
	a.must(err)
	return used
}

func (a *arena) outage(r *recovery) {
	a.Helper()
	a.empty()
	a.exec(fmt.Sprintf("INSERT INTO common_process_log (idempotent_id, business_type, content, token, next_at, created_at, updated_at) "+
		"SELECT CONCAT('late ', seq), '%s', ?, UNHEX(MD5(seq)), %s-60000+MOD(seq,50000), UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) FROM %s", benchType, floorNow, numbers(1, r.Backlog)), content)
	seen := newStarts()
	var old atomic.Int64
	l := a.newLibrary(1000, func(_ context.Context, e *compensator.Entry) error {
		if e.BusinessID == "" { // This is an entry of the backlog.
			old.Add(1)
		} else {
			seen.note(e.ID.String())
		}
		return nil
	})
	defer l.close()
	began := time.Now()
	l.run()
	done := make(chan float64, 1)
	from := make(map[string]time.Time)
	go func() {
		for old.Load() < int64(r.Backlog) && a.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		done <- float64(r.Backlog) / time.Since(began).Seconds()
	}()
	for open := true; open; {
		if time.Since(began) > 5*time.Minute {
			a.Fatalf("%d of %d entries handled after %v", old.Load(), r.Backlog, time.Since(began))
		}
		for id, at := range atRate(r.NewRate, r.NewRate, func() (string, time.Time) {
			receipt, err := l.record(a.Context(), 1, compensator.Options{BusinessID: "new"})
			a.must(err)
			return receipt.ID().String(), time.Now()
		}) {
			from[id] = at
		}
		select {
		case r.BacklogRate = <-done:
			open = false
		default:
		}
	}
	a.waitUntil(func() bool { return seen.count() >= len(from) })
	l2 := lagsOf("", 0, seen.latencies(from, 0))
	r.NewP50, r.NewP99 = l2.P50, l2.P99
}
