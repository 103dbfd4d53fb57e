package bench

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/compensator-go/compensator"
)

// The measured time ends when the last outcome is durable.
func (a *arena) sustained(n int) contest {
	return contest{
		work: "sustained: record and run at once", other: "floor: the same statements", unit: "entries/s", goal: 0.9, entries: n,
		ours: func() float64 {
			return a.ourSustained(compensator.HandlerConfig[raw]{Concurrency: 1000}, nothing, n, n)
		},
		theirs: func() float64 {
			db, own := a.openPlain(producers), a.openPlain(4)
			defer db.Close()
			defer own.Close()
			began := time.Now()
			a.must(a.floorSustained(db, own, n))
			return float64(n) / time.Since(began).Seconds()
		},
	}
}

// ourSustained returns the number of entries a second.
func (a *arena) ourSustained(cfg compensator.HandlerConfig[raw], handler func(context.Context, *compensator.Entry) error, n, outcomes int) float64 {
	l := a.newLibraryWith(cfg, handler)
	defer l.close()
	l.run()
	began := time.Now()
	_, err := share(n, producers, func(int) error {
		_, err := l.record(a.Context(), 1, compensator.Options{})
		return err
	})
	a.must(err)
	a.waitUntil(func() bool { return l.settled.Load() >= int64(outcomes) })
	return float64(n) / time.Since(began).Seconds()
}

func (a *arena) floorSustained(db, own *sql.DB, n int) error {
	ctx, cancel := context.WithCancelCause(a.Context())
	defer cancel(nil)
	ids := make(chan string, n)
	var loops sync.WaitGroup
	for range 2 {
		loops.Go(func() {
			for batch := range batches(ids) {
				if err := floorRun(ctx, own, batch); err != nil {
					cancel(err)
				}
			}
		})
	}
	_, err := share(n, producers, func(int) error {
		id, err := floorRecord(ctx, db, 1, floorLeased, 0)
		ids <- strconv.FormatInt(id, 10)
		return err
	})
	close(ids)
	loops.Wait()
	if err != nil {
		return err
	}
	return context.Cause(ctx)
}

func floorRun(ctx context.Context, own *sql.DB, ids []string) error {
	sums, err := floorRead(ctx, own, fmt.Sprintf(floorVerify, idList(ids)))
	if err != nil || len(sums) != len(ids) {
		return fmt.Errorf("read %d of %d rows: %v", len(sums), len(ids), err)
	}
	return floorSettle(ctx, own, ids, sums)
}

// batches yields the ids that have accumulated, at most floorBatch at a time, until the channel ids is closed and
// empty.
func batches(ids <-chan string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		for first := range ids {
			batch := []string{first}
			for more := true; more && len(batch) < floorBatch; {
				select {
				case id, open := <-ids:
					if more = open; open {
						batch = append(batch, id)
					}
				default:
					more = false
				}
			}
			if !yield(batch) {
				return
			}
		}
	}
}

// A -size above 1 multiplies waitLimit.
var waitLimit = 2 * time.Minute

func (a *arena) waitUntil(done func() bool) {
	a.Helper()
	deadline := time.Now().Add(waitLimit)
	for !done() {
		if time.Now().After(deadline) {
			a.Fatalf("the work did not end within %v: give less of it with -size", waitLimit)
		}
		time.Sleep(200 * time.Microsecond)
	}
}
